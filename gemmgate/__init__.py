"""gemmgate: is this kernel really faster than cuBLAS, on this GPU, for these shapes?"""

__version__ = "0.1.0"
