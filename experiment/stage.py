"""Starts a real cluster and kills its processes for `tidemark experiment kills`.

Place in the walk: it stands beside the platform, as the demo does, and uses only what a user has:
the tidemark commands, client processes, SIGKILL. The consumers' ledgers and the list of kills
record what happened; facts are shipped at the end.

Invariant: whatever happens (an error, Ctrl-C), every process it started is stopped before it
returns. Absent on purpose: judging.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from demo.ending import WishToEnd
from demo.ports import free_broker_port, free_port_block
from demo.processes import POLL_S, Actor, StageError, module, stop_all, tidemark
from experiment.ledger import Delivery, Ledgers
from experiment.plan import BROKER_NAME, HOSTS, QUEUES_PER_TOPIC, Flush, Kill, Plan, Victim

START_PATIENCE_S: Final = 60.0
QUIET_PATIENCE_S: Final = 90.0
"""A queue read in order waits for the lease of a member that died, up to 60 s."""
SHIP_PATIENCE_S: Final = 300.0
COMMIT_LOG_FILE_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Killed:
    """A kill that was carried out."""

    kill: Kill
    at_us: int
    """The machine's wall clock just before the first SIGKILL, µs since 1970 UTC."""
    until_us: int
    """When the next one came, or the end: what came again before is laid to this one."""
    flush: Flush
    """Of the broker's life behind the kill."""


@dataclass(frozen=True, slots=True)
class Played:
    """What happened."""

    cluster: str
    killed: tuple[Killed, ...]
    deliveries: tuple[Delivery, ...]
    """In the order of time."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where everything is."""

    home: Path
    """A folder of this run alone."""
    lake: str
    cluster: str

    @property
    def store(self) -> Path:
        """Folder of the broker's store."""
        return self.home / "store"

    @property
    def logs(self) -> Path:
        """Folder of what the processes say."""
        return self.home / "logs"

    @property
    def ledgers(self) -> Path:
        """Folder of what the listeners were given."""
        return self.home / "ledgers"


def play(plan: Plan, place: Place, report: Callable[[str], None]) -> Played:
    """Play the plan and ship its facts.

    Raises StageError when a process does not play its part, and KeyboardInterrupt, after everything
    has been stopped, when a signal wanted the end.
    """
    for folder in (place.store, place.logs, place.ledgers):
        folder.mkdir(parents=True)
    with WishToEnd() as wish:
        return Stage(plan, place, report, wish).run()


class Stage:
    """One run."""

    def __init__(
        self, plan: Plan, place: Place, report: Callable[[str], None], wish: WishToEnd
    ) -> None:
        self._plan = plan
        self._place = place
        self._report = report
        self._wish = wish
        self._ledgers = Ledgers(place.ledgers)
        namesrv_port, self._broker_port = free_port_block(1), free_broker_port()
        self._namesrv = f"127.0.0.1:{namesrv_port}"
        listeners = [kind.value for kind in plan.listeners]
        self._name_server = self._actor("namesrv", tidemark("namesrv", "--port", str(namesrv_port)))
        self._flush = plan.first_flush
        self._broker = self._broker_of(plan.first_flush)
        self._hosts = {
            name: self._actor(
                name,
                module(
                    *("experiment.consumer", self._namesrv, name),
                    *(str(place.ledgers), *listeners),
                ),
            )
            for name in HOSTS
        }
        self._producer = self._actor(
            "producer", module("experiment.producer", self._namesrv, *listeners)
        )

    def run(self) -> Played:
        """Play everything; no process is left."""
        killed: list[Killed] = []
        try:
            for actor in (self._name_server, self._broker, self._producer, *self._hosts.values()):
                self._start(actor)
            self._await_quiet()
            for kill in self._plan.kills:
                self._pause(kill.wait_s)
                at_us = _now_us()
                if killed:
                    killed[-1] = replace(killed[-1], until_us=at_us)
                self._carry_out(kill)
                quiet_s = self._await_quiet()
                killed.append(Killed(kill, at_us, _now_us(), self._flush))
                whom = " and ".join((*kill.hosts, *self._broker_if(kill)))
                self._report(f"kill {kill.number}: {whom}; quiet again after {quiet_s:.1f} s")
        finally:
            self._stop_everything()
        if killed:
            killed[-1] = replace(killed[-1], until_us=_now_us())
        self._ship()
        self._ledgers.read_on()
        return Played(self._place.cluster, tuple(killed), tuple(self._ledgers.deliveries))

    def _carry_out(self, kill: Kill) -> None:
        dying = [self._hosts[name] for name in kill.hosts]
        if kill.victim is Victim.BROKER:
            dying = [self._broker]
        elif kill.victim is Victim.BOTH:
            dying = [self._broker, *dying] if kill.broker_first else [*dying, self._broker]
        for actor in dying:
            actor.kill()
        self._pause(kill.down_s)
        if self._broker in dying:
            self._flush = kill.flush
            self._broker = self._broker_of(kill.flush)
            self._start(self._broker)
        for name in kill.hosts:
            self._start(self._hosts[name])

    def _await_quiet(self) -> float:
        """Until every queue brings messages that were stored from now on; how long, in seconds."""
        began_s, began_us = time.monotonic(), _now_us()
        waited_for = {
            (kind.group, kind.topic, queue_id)
            for kind in self._plan.listeners
            for queue_id in range(QUEUES_PER_TOPIC)
        }
        while waited_for:
            new = self._ledgers.read_on()
            waited_for -= {one.queue for one in new if one.stored_us > began_us}
            if time.monotonic() - began_s > QUIET_PATIENCE_S:
                raise StageError(
                    f"no new message came from {sorted(waited_for)} within "
                    f"{QUIET_PATIENCE_S:.0f} s; see {self._place.logs}"
                )
            self._pause(POLL_S)
        return time.monotonic() - began_s

    def _ship(self) -> None:
        self._report("shipping the facts")
        shipper = self._actor(
            "shipper",
            tidemark(
                *("shipper", "--store", str(self._place.store)),
                *("--lake", self._place.lake, "--once"),
            ),
        )
        with _stopped_at_last(shipper):
            shipper.start()
            shipper.await_end(within_s=SHIP_PATIENCE_S, heed=self._wish.heed)
        if shipper.exit_code != 0:
            raise StageError(
                f"the shipper ended with {shipper.exit_code}: {shipper.last_words()}; all that it "
                f"said is in {shipper.log}"
            )

    def _start(self, actor: Actor) -> None:
        actor.start_until_ready(within_s=START_PATIENCE_S, heed=self._wish.heed)

    def _stop_everything(self) -> None:
        stop_all([self._producer, *self._hosts.values()])
        stop_all([self._broker])
        stop_all([self._name_server])

    def _pause(self, for_s: float) -> None:
        self._wish.pause_until(time.monotonic() + for_s)

    def _broker_of(self, flush: Flush) -> Actor:
        settings = {
            "brokerClusterName": self._place.cluster,
            "brokerName": BROKER_NAME,
            "mappedFileSizeCommitLog": str(COMMIT_LOG_FILE_BYTES),
        }
        options = ["--store", str(self._place.store), "--namesrv", self._namesrv]
        options += ["--port", str(self._broker_port), "--flush", flush.value, "--lake", "none"]
        for key, value in settings.items():
            options += ["--set", f"{key}={value}"]
        return self._actor("broker", tidemark("broker", *options))

    def _broker_if(self, kill: Kill) -> list[str]:
        return [] if kill.victim is Victim.CONSUMER else [f"the broker ({kill.flush} next)"]

    def _actor(self, name: str, command: list[str]) -> Actor:
        return Actor(name, command, self._place.logs)


@contextmanager
def _stopped_at_last(actor: Actor) -> Iterator[None]:
    try:
        yield
    finally:
        stop_all([actor])


def _now_us() -> int:
    return time.time_ns() // 1000
