"""Commit-log replication to other machines: what a master sends and a slave follows."""

from engine.replication.acknowledgements import Acknowledgements
from engine.replication.ha_client import Following, HaClient, MasterAddress
from engine.replication.ha_service import HaService, Replica

__all__ = [
    "Acknowledgements",
    "Following",
    "HaClient",
    "HaService",
    "MasterAddress",
    "Replica",
]
