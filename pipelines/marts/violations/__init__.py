"""Facts that explain an offset report which broke a law."""
