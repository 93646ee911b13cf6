"""The connection to a cluster: routes, heartbeats, credentials and background tasks."""
