"""The SQL database that alerting, jobs, operations and sign-in share."""
