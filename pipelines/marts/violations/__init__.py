"""What accounts for an offset report that broke a law."""
