"""The consuming half of the client: rebalancing, pulls, listeners and offset reports."""
