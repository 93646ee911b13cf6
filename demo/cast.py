"""Command lines for the processes of a demo cluster, with shortened time settings.

The settings are short ones, so that each incident fits into two minutes: queues are rebalanced
every 5 s, a failed message is tried once more, and a stall is judged over 10 s of data time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from demo.accounts import AccountFiles
from demo.plan import (
    BILLING,
    BROKER_NAME,
    CLUSTER_NAME,
    GROUPS,
    JOINER,
    LEDGER,
    SHIPPING,
    GroupPlan,
    Incident,
    Plan,
    Scene,
)
from demo.processes import READY, Actor, module, tidemark

STALL_WINDOW_MS = 10_000
STALL_SLIDE_MS = 2_000
CHECKS_EVERY = 10
"""Cycles after which the lake is checked, of two seconds at least."""
DELAY_LEVELS = "1s 1s 1s 2s 3s 4s 5s 6s 7s 8s 9s 10s 20s 30s 1m 2m 3m 4m"
COMMIT_LOG_FILE_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Roles:
    """Where everything is: folders and ports."""

    home: Path
    lake: Path
    namesrv_port: int
    broker_port: int
    dash_port: int
    accounts: AccountFiles | None = None
    """Files of who may do what; None: the cluster has no accounts."""

    @property
    def namesrv(self) -> str:
        """Address of the name server."""
        return f"127.0.0.1:{self.namesrv_port}"

    @property
    def store(self) -> Path:
        """Folder of the broker's store."""
        return self.home / "store"

    @property
    def logs(self) -> Path:
        """Folder of what the processes say."""
        return self.home / "logs"


class Cast(ABC):
    """The processes of one run, none of them started yet: a cluster with its clients, somebody who
    brings facts about it to the lake, and what makes gold and pages of them.
    """

    name_server: Actor
    broker: Actor
    reporter: Actor
    """The process that ships facts to the lake."""
    producer: Actor

    def __init__(self, plan: Plan, roles: Roles) -> None:
        self.roles = roles
        self._plan = plan
        self.pipeline = self._actor(
            "pipeline",
            tidemark(
                *("pipeline", "run", *self._lake),
                *("--window-ms", str(STALL_WINDOW_MS), "--slide-ms", str(STALL_SLIDE_MS)),
                *("--checks-every", str(CHECKS_EVERY)),
            ),
        )
        self.dash = self._actor("dash", tidemark("dash", *self._lake, *_dash_options(roles)))
        self.consumers = {
            member: self._actor(member, self._consumer_command(group, member))
            for group in GROUPS
            for member in (*group.members, *((JOINER,) if group is BILLING else ()))
        }

    @property
    def clients(self) -> list[Actor]:
        """Producer and consumers, in the order in which they stop."""
        return [self.producer, *self.consumers.values()]

    @property
    def platform(self) -> list[Actor]:
        """Everything else, in the order in which it stops; none of it may end by itself."""
        return [self.broker, self.reporter, self.pipeline, self.dash, self.name_server]

    def check(self) -> Actor:
        """A run of the expectations."""
        return self._actor("check", tidemark("check", *self._lake))

    def reset(self, scene: Scene, to_ms: int) -> Actor:
        """An administrator who lets a group go on from the messages stored at a time."""
        place = (scene.group.name, scene.group.topic, str(to_ms))
        command = tidemark("admin", "offset", "reset", *place, "--namesrv", self.roles.namesrv)
        return self._actor("reset", command)

    @abstractmethod
    def prepare(self) -> None:
        """Bring what has to be there before the cluster starts."""

    @abstractmethod
    def _consumer_program(self) -> list[str]:
        """Command line of a consumer, its arguments to be added."""

    @property
    def _lake(self) -> tuple[str, str]:
        return "--lake", str(self.roles.lake)

    def _actor(
        self, name: str, command: list[str], *, talks: bool = False, ready: str = READY
    ) -> Actor:
        return Actor(name, command, self.roles.logs, talks=talks, ready=ready)

    def _consumer_command(self, group: GroupPlan, member: str) -> list[str]:
        """A consumer that knows which message is meant for it, if any."""
        ledger = self.roles.home / "ledgers" / f"{member}.jsonl"
        command = self._consumer_program()
        command += [self.roles.namesrv, group.name, group.topic, member, str(ledger)]
        for incident, option, concerned in (
            (Incident.FROZEN_HEAD, "--freezes-on", group is SHIPPING),
            (Incident.POISON, "--fails-on", group is BILLING),
            (Incident.CONSUMER_KILL, "--dies-on", group is LEDGER),
        ):
            scene = self._plan.scene(incident)
            if scene is not None and concerned and scene.victim in (None, member):
                command += [option, scene.message_key]
        return command


class OwnCast(Cast):
    """A cluster of ours: its broker emits facts, and a shipper carries them."""

    def __init__(self, plan: Plan, roles: Roles) -> None:
        super().__init__(plan, roles)
        namesrv = ("namesrv", "--port", str(roles.namesrv_port))
        self.name_server = self._actor("namesrv", tidemark(*namesrv, *_access_options(roles)))
        options = broker_options(roles, store=roles.store, port=roles.broker_port)
        self.broker: Actor = self._actor("broker", tidemark("broker", *options))
        self.reporter: Actor = self._actor(
            "shipper", tidemark("shipper", "--store", str(roles.store), *self._lake)
        )
        self.producer = self._actor("producer", _producer_command(roles), talks=True)

    def prepare(self) -> None:
        """Nothing: a broker of ours needs no more than this environment."""

    def _consumer_program(self) -> list[str]:
        accounts = self.roles.accounts
        credentials = () if accounts is None else ("--credentials", str(accounts.consumer))
        return module("demo.consumer", *credentials)


def _dash_options(roles: Roles) -> list[str]:
    port = ["--port", str(roles.dash_port)]
    # With accounts nobody is asked: pages have no log-in, so every reader would use the account.
    return [*port, "--namesrv", roles.namesrv] if roles.accounts is None else port


def broker_options(
    roles: Roles, *, store: Path, port: int, more: Mapping[str, str] | None = None
) -> list[str]:
    """Options of one broker, with settings beyond those that all brokers of a demo have."""
    settings = {
        "brokerClusterName": CLUSTER_NAME,
        "brokerName": BROKER_NAME,
        "messageDelayLevel": DELAY_LEVELS,
        "mappedFileSizeCommitLog": str(COMMIT_LOG_FILE_BYTES),
    } | dict(more or {})
    options = ["--store", str(store), "--namesrv", roles.namesrv]
    options += ["--port", str(port), "--flush", "async", "--lake", "none"]
    for key, value in settings.items():
        options += ["--set", f"{key}={value}"]
    return options + _access_options(roles)


def _access_options(roles: Roles) -> list[str]:
    return [] if roles.accounts is None else ["--access", str(roles.accounts.access)]


def _producer_command(roles: Roles) -> list[str]:
    command = module("demo.producer", roles.namesrv)
    if roles.accounts is not None:
        command += ["--credentials", str(roles.accounts.producer)]
        command += ["--admin-credentials", str(roles.accounts.admin)]
    return command
