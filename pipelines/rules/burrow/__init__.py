"""A faithful port of Burrow's evaluator: its storage, its rules in order, its notifier.

Rules as of Burrow at ced55ba9; docs/burrow.md lists them, in order, and where ours differ.
"""
