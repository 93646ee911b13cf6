"""Laws for the data, by kind: tables, rows, related rows, intervals, queue ends, emitters."""
