"""The laws: of every table, of rows, between rows, of intervals, ends of queues, and emitters."""
