"""The web dashboard: pages on lag, topics, alerts, checks, reports and jobs."""
