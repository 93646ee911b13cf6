"""Foundation shared by all packages: errors, limits, units, settings and observer interface."""
