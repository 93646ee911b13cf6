"""Broker request handlers, with one module per type of request."""
