"""History: every change of an alert, from the log of changes in SQL into the Delta table `alerts`.

Place in the walk: behind each step, beside the outbox. Telling does not wait for it.

Invariant: each change is in the table once, over any kill: the commit carries the number of its
last row as a Delta transaction, and before a write the table is asked how far it is. Absent on
purpose: any other writer of that table.
"""
