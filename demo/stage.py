"""Runs a demo: starts the cluster and its clients, plays the plan and requests the verdict.

Place in the walk: it stands beside the platform and uses only what a user has: the tidemark
commands, client processes that use the client library, SIGKILL, and the lake.

Invariant: whatever happens (an error, Ctrl-C at any moment, and again), every process it started is
stopped before it returns. Absent on purpose: any channel into the platform. The stage knows what it
did; the verdict never asks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable
from rich.console import Console

from demo.accounts import write_accounts
from demo.cast import Roles
from demo.ending import WishToEnd
from demo.home import fresh_home
from demo.kinds import OWN, Kind
from demo.patience import RENEWALS_MAX, Patience, work_of
from demo.plan import JOINER, Incident, Plan, Scene
from demo.ports import free_broker_port, free_port_block
from demo.processes import Actor, StageError, stop_all
from demo.verdict import Verdict, judge, read_gold
from pipelines.lake.lake import GOLD_FOLDER

START_PATIENCE_S = 60.0
GOLD_PATIENCE_S = 180.0
DRAIN_PATIENCE_S = 60.0
CHECK_PATIENCE_S = 180.0
"""It starts a Spark of its own, and may wait for the round of the checks beside the pipeline."""
JUDGED_EXIT_CODES = (0, 1)
"""Of a check that has looked at the lake, whatever it found there."""
BROKER_DOWN_S = 3.0
RESET_BACK_S = 20.0
RESET_PATIENCE_S = 60.0
POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may choose: where everything is kept, the dashboard's port, and how it ends."""

    home: Path
    dash_port: int
    linger: bool
    """Keep the cluster at work after the verdict, until Ctrl-C."""
    with_accounts: bool = False
    """Give every party an account, and take no request that is not signed."""
    kind: Kind = OWN
    """What kind of cluster is played."""


def perform(
    plan: Plan, settings: Settings, console: Console, show: Callable[[Verdict], None]
) -> Verdict:
    """Play everything, `show` what gold says, and return it.

    Raises StageError when a process does not play its part, ConfigError when the home cannot be
    had, and KeyboardInterrupt, after everything has been stopped, when a signal wanted the end.
    """
    with WishToEnd() as wish, fresh_home(settings.home) as home:
        verdict = Stage(plan, settings, console, home=home, wish=wish).run(show)
        wish.heed()  # It may have come while everything was being stopped.
        return verdict


class Stage:
    """One run of the demo."""

    def __init__(
        self, plan: Plan, settings: Settings, console: Console, *, home: Path, wish: WishToEnd
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._console = console
        self._wish = wish
        self._lake = home / "lake"
        accounts = write_accounts(home / "accounts") if settings.with_accounts else None
        self._cast = settings.kind.cast(
            plan,
            Roles(
                home=home,
                lake=self._lake,
                namesrv_port=free_port_block(1),
                broker_port=free_broker_port(),
                dash_port=settings.dash_port,
                accounts=accounts,
            ),
        )

    def run(self, show: Callable[[Verdict], None]) -> Verdict:
        """Play everything, `show` what gold says, and return it; no process is left."""
        try:
            self._raise_curtain()
            self._play()
            self._drain()
            verdict = self._verdict()
            show(verdict)
            if self._settings.linger:
                self._linger()
            return verdict
        finally:
            try:
                self._say("stopping everything")
            finally:  # Nobody may be listening any more.
                self._stop_everything()

    def _stop_everything(self) -> None:
        cast = self._cast
        stop_all(cast.clients)  # First, so that their last facts still reach the lake.
        stop_all([cast.broker])
        stop_all([cast.reporter, cast.pipeline, cast.dash, cast.name_server])

    def _raise_curtain(self) -> None:
        cast = self._cast
        cast.dash.start()  # First: its port is the one that somebody else may have.
        line = cast.dash.wait_for_line("dash ", within_s=START_PATIENCE_S, heed=self._wish.heed)
        self._say(f"dashboard: {line.removeprefix('dash ')}")
        cast.prepare()
        self._start(cast.name_server)
        self._start(cast.broker)
        self._say(f"name server and broker are up at {cast.roles.namesrv}")
        if cast.roles.accounts is not None:
            admin = cast.roles.accounts.admin
            self._say(f"they want signed requests: tidemark admin --credentials {admin}")
        for actor in (cast.reporter, cast.pipeline):
            self._wish.heed()
            actor.start()
        self._start(cast.producer)
        for name, consumer in cast.consumers.items():
            if name != JOINER:
                self._wish.heed()
                consumer.start()
        self._say("a producer and three consumer groups are at work; Spark is starting")
        self._wait("the first gold row", lambda: self._gold_seen_us() > 0, GOLD_PATIENCE_S)
        self._say(f"first gold row; {len(self._plan.scenes)} incidents follow")

    def _start(self, actor: Actor) -> None:
        actor.start_until_ready(within_s=START_PATIENCE_S, heed=self._wish.heed)

    def _play(self) -> None:
        began_s = time.monotonic()
        for scene in sorted(self._plan.scenes, key=lambda scene: scene.at_s):
            self._sleep_until(began_s + scene.at_s)
            self._say(f"{scene.at_s:6.1f} s  {announcement(scene)}")
            self._act(scene)
        self._sleep_until(began_s + self._plan.duration_s)

    def _act(self, scene: Scene) -> None:
        cast = self._cast
        match scene.incident:
            case Incident.FROZEN_HEAD | Incident.POISON | Incident.CONSUMER_KILL:
                order = {
                    "topic": scene.group.topic,
                    "queue_id": scene.queue_id,
                    "key": scene.message_key,
                }
                cast.producer.send_line(json.dumps(order))
            case Incident.JOIN:
                cast.consumers[JOINER].start()
            case Incident.RESET:
                to_ms = time.time_ns() // 1_000_000 - round(RESET_BACK_S * 1_000)
                self._play_to_its_end(cast.reset(scene, to_ms), within_s=RESET_PATIENCE_S)
            case Incident.BROKER_KILL:
                cast.broker.kill()
                self._wish.pause_until(time.monotonic() + BROKER_DOWN_S)
                self._start(cast.broker)

    def _drain(self) -> None:
        """Wait until gold has seen everything that happened up to now."""
        if not self._settings.linger:
            stop_all([self._cast.producer])
        ended_us = time.time_ns() // 1000
        self._say("the play is over; waiting for gold to catch up")
        self._wait("gold's last row", lambda: self._gold_seen_us() >= ended_us, DRAIN_PATIENCE_S)

    def _verdict(self) -> Verdict:
        self._say("running the checks")
        self._play_to_its_end(
            self._cast.check(), within_s=CHECK_PATIENCE_S, exit_codes=JUDGED_EXIT_CODES
        )
        return judge(self._plan, read_gold(self._lake), self._settings.kind.looks)

    def _play_to_its_end(
        self, actor: Actor, *, within_s: float, exit_codes: Collection[int] | None = None
    ) -> None:
        """Of one that ends by itself."""
        self._wish.heed()
        actor.start()
        try:
            actor.await_end(within_s=within_s, heed=self._wish.heed, exit_codes=exit_codes)
        finally:
            stop_all([actor])

    def _linger(self) -> None:
        self._say("the cluster stays up; Ctrl-C stops everything")
        while True:
            self._look_around()
            time.sleep(POLL_S)

    def _gold_seen_us(self) -> int:
        """Newest observed_at in consumer_lag, µs since 1970; 0 before there is any."""
        path = str(self._lake / GOLD_FOLDER / "consumer_lag")
        if not DeltaTable.is_deltatable(path):
            return 0
        newest = DeltaTable(path).get_add_actions(flatten=True)["max.observed_at"].to_pylist()
        known = [moment for moment in newest if moment is not None]
        return int(max(known).timestamp() * 1_000_000) if known else 0

    def _wait(self, what: str, condition: Callable[[], bool], within_s: float) -> None:
        """Wait for something, as long as the pipeline says or does more; where nobody watches, not
        for ever.
        """
        pipeline = self._cast.pipeline
        patience = Patience(
            time.monotonic(),
            within_s,
            lambda: (pipeline.last_words(), self._gold_seen_us(), work_of(pipeline.pid)),
            renewals_max=None if self._settings.linger else RENEWALS_MAX,
        )
        while not condition():
            self._look_around()
            if patience.is_over(time.monotonic()):
                logs = self._cast.roles.logs
                raise StageError(
                    f"{what} did not come in {within_s:.0f} s without news; see {logs}"
                )
            if patience.is_tried(time.monotonic()):
                self._say(f"still waiting for {what}; the pipeline says: {pipeline.last_words()}")
            time.sleep(POLL_S)

    def _sleep_until(self, moment_s: float) -> None:
        while time.monotonic() < moment_s:
            self._look_around()
            self._wish.pause_until(min(time.monotonic() + POLL_S, moment_s))

    def _look_around(self) -> None:
        """Raise when somebody wants the end, or when a part of the platform has ended."""
        self._wish.heed()
        for actor in self._cast.platform:
            if actor.exit_code is not None:
                raise StageError(
                    f"{actor.name} ended, exit code {actor.exit_code}; see {actor.log}"
                )

    def _say(self, words: str) -> None:
        self._console.print(words, highlight=False)


def announcement(scene: Scene) -> str:
    """One line that shows the audience what is done now."""
    where = f"{scene.group.name} on {scene.group.topic}/{scene.queue_id}"
    match scene.incident:
        case Incident.FROZEN_HEAD:
            return f"a listener of {where} gets a message for which it never returns"
        case Incident.POISON:
            return f"a poison message for {where}: every try fails"
        case Incident.CONSUMER_KILL:
            return f"{scene.victim} of {where} dies by SIGKILL between processing and commit"
        case Incident.JOIN:
            return f"{scene.victim} joins {scene.group.name}"
        case Incident.RESET:
            return f"an administrator sets {scene.group.name} back by {RESET_BACK_S:.0f} s"
        case Incident.BROKER_KILL:
            return f"the broker dies by SIGKILL and is restarted after {BROKER_DOWN_S:.0f} s"
