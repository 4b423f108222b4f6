"""From a callable and a clock to samples: knows no family and no file. Runs inside a worker."""
