"""Code shared by all pipeline packages: settings, secrets, times and text formatting."""
