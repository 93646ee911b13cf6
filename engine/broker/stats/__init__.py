"""Counts, rates and latencies of a running broker."""
