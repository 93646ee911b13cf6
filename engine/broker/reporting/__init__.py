"""Facts that a broker emits about itself: watermarks, client windows and losses."""
