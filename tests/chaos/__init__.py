"""Copies of a broker on hosts of their own, their clients, and what goes wrong meanwhile."""
