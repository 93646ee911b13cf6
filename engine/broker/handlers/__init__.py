"""Broker request handlers, one module per kind of request."""
