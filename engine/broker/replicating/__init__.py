"""The broker's side of replication, as a master with slaves or as a slave."""
