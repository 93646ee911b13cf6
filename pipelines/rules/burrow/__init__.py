"""Burrow's evaluator, exactly: storage of commits, rules in the order of its code, its notifier.

Rules as of Burrow at ced55ba9; docs/burrow.md tells them, in order, and where ours differ.
"""
