"""Changes made from pages: previewed, authorised, applied once and audited."""
