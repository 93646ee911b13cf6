"""Rule sets used by other tools, evaluated on our facts for comparison.

Place in the walk: beside the marts, for backtests; no gold table is made from it. `burrow/` is
Burrow's evaluator whole, `thresholds` a plain limit of lag, `observations` what they share.
Invariant: pure. The faults of others are kept: a rule that is mended here would no longer say what
theirs says.
"""
