"""Changes made from pages, each previewed, authorised, applied once and audited."""
