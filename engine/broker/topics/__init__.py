"""A broker's topics and their attributes."""
