"""The consuming half of the client: from a held pull to a reported offset."""
