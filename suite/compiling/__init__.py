"""Compiling without running: what a kernel becomes on a GPU that is not here.

`representative` and `plan` say what is compiled, `worker` is the child process that does it and `driver` what tells
it what became of a launch, `pool` keeps children busy and survives their end, `facts` remembers what was compiled,
`cubin` counts instructions, `reproducible` has equal kernels assembled alike, `occupancy` says what fits a
multiprocessor, `base` has another commit's kernels, `tables` and `legality` look at tuned tiles without compiling
them, and `judge` compares two sets of rows. Only `worker` and `driver` import torch and Triton, and only children
import them.
"""
