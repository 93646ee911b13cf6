"""Provides the SQL database shared by alerting, jobs, operations and sign-in."""
