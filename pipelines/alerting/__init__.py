"""Alerting: rules over gold become alerts, and alerts become notices to people.

Place in the walk: after gold; beside dashboards and notebooks, a process of its own.
A cycle of gold → rules over its rows → signals → alerts → notices → one SQL transaction with all
of it → the outbox → channels.

Invariant: what is decided is decided in pure functions of rules, rows, what was known and one
moment; what was decided is stored before anything is sent. Absent on purpose: verdicts. An alert
says what gold says.
"""
