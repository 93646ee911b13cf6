"""A client's cluster connection: routes, heartbeats, credentials and background tasks."""
