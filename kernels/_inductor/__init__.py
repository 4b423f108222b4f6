"""What families share to measure torch's compiler: compiling for one shape, and looking into its autotuner."""
