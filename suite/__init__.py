"""The harness: everything between a kernel and a verdict. Imported as `gemmgate.suite`."""
