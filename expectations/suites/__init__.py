"""Data-quality suites, with one module per type of constraint."""
