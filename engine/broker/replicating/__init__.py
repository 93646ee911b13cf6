"""The broker's side of replication, as either master or slave."""
