"""What a broker answers: one module per kind of request."""
