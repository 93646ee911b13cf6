"""Code shared by every room: settings, times, number wording and command-line options."""
