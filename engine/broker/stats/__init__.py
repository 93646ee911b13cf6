"""Counters, rates and latencies for a running broker."""
