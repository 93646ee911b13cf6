"""Demo cluster types, each with its processes and the gold evidence expected per incident.

Place in the walk: the command chooses one; the stage takes what it says and does not know which.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from demo import looks, observed_looks
from demo.cast import Cast, OwnCast
from demo.looks import Look
from demo.plan import Incident
from demo.raft_cast import RaftCast
from demo.rocketmq_cast import RocketMQCast


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of cluster."""

    cast: type[Cast]
    looks: Mapping[Incident, Look]
    """Of each incident that is played: what gold shows of it."""


OWN = Kind(OwnCast, looks.LOOKS)
RAFT = Kind(RaftCast, looks.LOOKS_OF_A_GROUP)
ROCKETMQ = Kind(RocketMQCast, observed_looks.LOOKS)
