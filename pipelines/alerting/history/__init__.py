"""Alert history: copies every change from the SQL log to the Delta table `alerts`.

Place in the walk: behind each step, beside the outbox. Sending does not wait for it.

Invariant: each change is in the table once, over any kill: the commit carries the number of its
last row as a Delta transaction, and each write first reads how far the table is. Absent on purpose:
any other writer of that table.
"""
