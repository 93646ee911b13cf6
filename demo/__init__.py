"""A cluster on one machine, incidents played on schedule, a verdict computed from gold alone."""
