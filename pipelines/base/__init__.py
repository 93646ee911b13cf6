"""What every room may use: settings, moments, numbers in words, options of commands."""
