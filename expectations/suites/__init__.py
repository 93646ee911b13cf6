"""The laws by kind: every table, rows, between rows, intervals, queue ends and emitters."""
