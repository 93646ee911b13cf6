"""What pages change: previewed, authorised, done once, and audited."""
