"""Demo: a cluster on one machine, scheduled incidents, a verdict computed from gold alone."""
