"""Vocabulary shared by all rooms: errors, limits, units, settings, observer port. No I/O."""
