"""The risk of double consumption: events that open, confirm and end it."""
