"""Request handlers of a broker, one module per kind of request."""
