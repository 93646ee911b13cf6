"""Web dashboard with pages for lag, topics, alerts, checks, reports and jobs."""
