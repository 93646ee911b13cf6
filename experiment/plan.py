"""Pure functions that plan an experiment from a seed: kill targets, times and restarts.

Place in the walk: before anything starts; the stage plays the plan, the score names its kills.

Invariant: the same seed and number of kills give the same plan. Absent on purpose: queues and
messages. Whatever is under way at the moment of a kill is what it harms.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from engine.foundation.errors import ConfigError

BROKER_NAME: Final = "broker-a"
CLUSTER_NAME: Final = "KillsCluster"
QUEUES_PER_TOPIC: Final = 4
HOSTS: Final = ("host-1", "host-2")
"""Each runs one member of every group, so a kill of one takes a member of each."""
KILLS_MAX: Final = 10_000


class Listener(StrEnum):
    """How a group's listeners work; the value is its name on the command line."""

    FAST = "fast"
    SLOW = "slow"
    BATCH = "batch"
    ORDERLY = "orderly"

    @property
    def group(self) -> str:
        """The consumer group that works so."""
        return f"kills-{self.value}"

    @property
    def topic(self) -> str:
        """What it reads; nobody else does."""
        return f"work-{self.value}"


class Flush(StrEnum):
    """How the broker flushes; the value is what `--flush` of a broker takes."""

    ASYNC = "async"
    SYNC = "sync"


class Victim(StrEnum):
    """The victim of the kill."""

    CONSUMER = "CONSUMER"
    BROKER = "BROKER"
    BOTH = "BOTH"


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill: how long after the cluster was quiet, who, and how it goes on."""

    number: int
    """From 1."""
    wait_s: float
    victim: Victim
    hosts: tuple[str, ...]
    """Consumers that die; none when the broker dies alone."""
    broker_first: bool
    """Of BOTH: who dies a moment earlier."""
    down_s: float
    """From the kill until what died is started again."""
    flush: Flush
    """Of the broker's next life."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that will be played."""

    seed: int
    listeners: tuple[Listener, ...]
    first_flush: Flush
    kills: tuple[Kill, ...]


PAUSE_S_MAX: Final = 6.0
"""Longer than offsets wait to be reported and written (5 s): a kill finds them in every state."""


def make_plan(
    kills: int,
    seed: int,
    listeners: Sequence[Listener],
    flushes: Sequence[Flush],
    *,
    pause_s_max: float = PAUSE_S_MAX,
) -> Plan:
    """Draw the kills from `seed`, each within `pause_s_max` after the cluster was quiet. Raises
    ConfigError for a number out of range.
    """
    if not 1 <= kills <= KILLS_MAX:
        raise ConfigError("kills", kills, f"1 to {KILLS_MAX}")
    choice = random.Random(seed)  # noqa: S311 - a script for the stage, not a secret.
    first_flush = choice.choice(flushes)
    return Plan(
        seed=seed,
        listeners=tuple(dict.fromkeys(listeners)),
        first_flush=first_flush,
        kills=tuple(_drawn(number, choice, flushes, pause_s_max) for number in range(1, kills + 1)),
    )


def _drawn(
    number: int, choice: random.Random, flushes: Sequence[Flush], pause_s_max: float
) -> Kill:
    # In turn, so that few kills have all three as well; when and how long is left to chance.
    victim = tuple(Victim)[(number - 1) % len(Victim)]
    one, all_of_them = (choice.choice(HOSTS),), HOSTS
    hosts = one if choice.random() < 0.75 else all_of_them
    return Kill(
        number=number,
        wait_s=round(choice.uniform(0.0, pause_s_max), 3),
        victim=victim,
        hosts=() if victim is Victim.BROKER else hosts,
        broker_first=choice.random() < 0.5,
        down_s=round(choice.uniform(0.2, 3.0), 3),
        flush=choice.choice(flushes),
    )
