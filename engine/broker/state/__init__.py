"""What a broker knows: pure tables, moved by handlers, read by watermarks."""
