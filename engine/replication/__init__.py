"""Commit-log replication from a master to its slaves on other machines."""

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
