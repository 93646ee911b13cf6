"""Who sends a request, and whether it is answered: hosts, sessions, failed sign-ins."""
