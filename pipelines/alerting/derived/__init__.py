"""Tables derived from gold at each look: retry rates and burn rates of objectives.

Place in the walk: gold, read with delta-rs → frames of `RETRY_RATES` and `OBJECTIVE_BURN`, beside
those of marts. Invariant: they are of the moment of the look, and the same gold makes the same
rows. Absent on purpose: verdicts: what is too much is a rule's.
"""
