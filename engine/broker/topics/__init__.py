"""The broker's topics and their attributes."""
