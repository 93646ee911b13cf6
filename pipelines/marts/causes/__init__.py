"""Diagnoses lag: defines its possible causes and the figures and tests that reveal them."""
