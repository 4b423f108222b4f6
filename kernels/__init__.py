"""The kernels under measurement, one folder a family. Imported as `gemmgate.kernels`."""
