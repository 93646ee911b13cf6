"""The web dashboard: pages for lag, topics, alerts, checks, reports and jobs."""
