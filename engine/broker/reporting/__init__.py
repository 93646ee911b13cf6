"""The facts that a broker emits about itself: marks, client windows, losses."""
