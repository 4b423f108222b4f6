"""`python -m gemmgate` is the same program as the console script `gemmgate`."""

from gemmgate.suite.cli import main

main()
