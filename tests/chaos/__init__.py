"""A Raft group of brokers on hosts of its own, its clients, and what goes wrong meanwhile."""
