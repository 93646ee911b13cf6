"""Evaluates alert rules over gold, raises alerts and notifies people of them.

Place in the walk: after gold, a process of its own: a cycle of gold → rules over its rows → signals
→ alerts → notices → one SQL transaction → the outbox → channels. Invariant: what is decided is
decided in pure functions, and stored before anything is sent. Absent on purpose: verdicts. An alert
says what gold says.
"""
