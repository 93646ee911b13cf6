"""The individual migrations; each names its predecessor."""
