"""Words every other room may use: errors, limits, units, settings, the observer port. No I/O."""
