"""Rule sets of other tools, run on the same facts as ours for comparison.

Place in the walk: beside the marts, for comparison and for backtests; no gold table is made from
it. `burrow/` is Burrow's evaluator whole, `thresholds` a plain limit of lag. What is common to rule
sets, observations in and verdicts out, is in `observations`.

Invariant: pure. Time arrives as an argument, files are read by the commands. The faults of others
are kept: a rule that is mended here would no longer say what theirs says.
"""
