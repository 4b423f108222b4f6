"""The search for tiles that all families share: candidates, racing, tables.

The core (`candidates`, `racing`, `ranges`, `oracle`, `planned`, `requests`) is pure and runs on a device made of known
times; `pool`, `gpu` and `tuner` give it compilers and a device that are real.
"""
