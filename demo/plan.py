"""Pure functions that plan a demo from a seed: its incidents, times, queues and victims.

Place in the walk: before anything starts; the stage plays the plan, the verdict holds gold
against it.

Invariant: the same seed and duration give the same plan. An incident left out changes no time,
queue or victim of the others.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from engine.client.consuming.allocation import Averagely
from engine.foundation.errors import ConfigError
from engine.protocol.message import MessageQueue

BROKER_NAME = "broker-a"
CLUSTER_NAME = "DemoCluster"
QUEUES_PER_TOPIC = 4
ORDERS = "orders"
PAYMENTS = "payments"
DURATION_S_MIN = 90
"""Shorter runs leave no room between the incidents for each to be seen apart from the next."""


class Incident(Enum):
    """What can go wrong on stage; the value is its name on the command line."""

    FROZEN_HEAD = "frozen-head"
    POISON = "poison"
    CONSUMER_KILL = "consumer-kill"
    JOIN = "join"
    RESET = "reset"
    BROKER_KILL = "broker-kill"


OWN_INCIDENTS = tuple(incident for incident in Incident if incident is not Incident.RESET)
"""What is played on a cluster of ours."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A consumer group on stage."""

    name: str
    topic: str
    members: tuple[str, ...]


BILLING = GroupPlan("billing", ORDERS, ("billing-1", "billing-2"))
SHIPPING = GroupPlan("shipping", ORDERS, ("shipping-1", "shipping-2"))
LEDGER = GroupPlan("ledger", PAYMENTS, ("ledger-1", "ledger-2"))
GROUPS = (BILLING, SHIPPING, LEDGER)
JOINER = "billing-3"


CUES = {
    Incident.FROZEN_HEAD: 0.08,
    Incident.POISON: 0.18,
    Incident.CONSUMER_KILL: 0.30,
    Incident.JOIN: 0.45,
    Incident.RESET: 0.55,
    Incident.BROKER_KILL: 0.65,
}
"""When each incident is due, as a share of the run; chance moves it by up to CUE_DRIFT."""
CUE_DRIFT = 0.05


@dataclass(frozen=True, slots=True)
class Scene:
    """One incident: when it is due (seconds after the first gold row), where, at whose cost."""

    incident: Incident
    at_s: float
    group: GroupPlan
    queue_id: int | None = None
    victim: str | None = None

    @property
    def message_key(self) -> str:
        """Key of the message that carries the fault: only that message sets it off."""
        return f"demo-{self.incident.value}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that will be played, in the order of time."""

    seed: int
    duration_s: int
    scenes: tuple[Scene, ...]
    skipped: tuple[Incident, ...]

    def scene(self, incident: Incident) -> Scene | None:
        """The scene of an incident, or None when it is left out."""
        return next((scene for scene in self.scenes if scene.incident is incident), None)


def make_plan(
    seed: int,
    duration_s: int,
    skip: Collection[Incident] = (),
    incidents: Collection[Incident] = OWN_INCIDENTS,
) -> Plan:
    """Draw times, queues and victims of `incidents` from `seed`; ConfigError when `duration_s` is
    too short.
    """
    if duration_s < DURATION_S_MIN:
        raise ConfigError(
            "for", duration_s, f"at least {DURATION_S_MIN} seconds, so that every incident fits"
        )
    choice = random.Random(seed)  # noqa: S311 - a script for the stage, not a secret.
    at_s = {
        incident: round(duration_s * (share + choice.uniform(0.0, CUE_DRIFT)), 1)
        for incident, share in CUES.items()
        if incident in incidents
    }
    frozen_queue_id = choice.randrange(QUEUES_PER_TOPIC)
    poisoned_queue_id = choice.randrange(QUEUES_PER_TOPIC)
    victim = choice.choice(LEDGER.members)
    killed_queue_id = choice.choice(_queues_of(victim))
    scenes = [
        Scene(incident, at_s[incident], group, queue_id, whom)
        for incident, group, queue_id, whom in (
            (Incident.FROZEN_HEAD, SHIPPING, frozen_queue_id, None),
            (Incident.POISON, BILLING, poisoned_queue_id, None),
            (Incident.CONSUMER_KILL, LEDGER, killed_queue_id, victim),
            (Incident.JOIN, BILLING, None, JOINER),
            (Incident.RESET, LEDGER, None, None),
            (Incident.BROKER_KILL, LEDGER, None, BROKER_NAME),
        )
        if incident in incidents
    ]
    return Plan(
        seed=seed,
        duration_s=duration_s,
        scenes=tuple(scene for scene in scenes if scene.incident not in skip),
        skipped=tuple(scene.incident for scene in scenes if scene.incident in skip),
    )


def _queues_of(victim: str) -> list[int]:
    """The queues the victim will own, known beforehand: allocation is a pure function."""
    queues = [MessageQueue(LEDGER.topic, BROKER_NAME, number) for number in range(QUEUES_PER_TOPIC)]
    owned = Averagely().allocate(victim, queues, sorted(LEDGER.members))
    return [queue.queue_id for queue in owned]
