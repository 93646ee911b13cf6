"""Demo: plays scheduled incidents on a local cluster and judges them from gold alone."""
