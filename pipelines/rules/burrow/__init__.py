"""A faithful port of Burrow's storage, evaluation rules and notifier.

Rules as of Burrow at ced55ba9; docs/burrow.md lists them, in order, and where ours differ.
"""
