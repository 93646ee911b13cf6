"""The connection to a cluster: its routes, heartbeats, credentials and background tasks."""
