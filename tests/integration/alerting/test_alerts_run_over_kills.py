"""kill -9 of `tidemark alerts run` at any moment, a hundred times: each stall is sent once, and its
end too.

The lake goes on while the process dies and is started again: one group after the other stands, is
sent, goes on, is sent. A step is done when the database says so, whoever of the processes stored
it. Some kills come at random, others while a notice is being answered. The server that is sent to
fails now and then; its ledger is held against what happened: what is sent twice is the same notice,
sent by a process that was killed before it could note it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.alerting.alerts import State
from pipelines.alerting.outbox.claims import is_empty
from pipelines.alerting.store import steps
from pipelines.base.settings import Evaluation
from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from tests.integration.alerting.receiving_server import Answer, Ledger, receiving
from tests.integration.alerting.test_alerting_process import RULES, TELLING
from tests.integration.alerting.test_outbox_over_kills import Failing
from tests.pipelines.bronze_lake import BronzeWriter
from tests.pipelines.emitted_in_steps import Story, keeps_up, stands
from tests.pipelines.in_process import driver_of, run_to_the_end

TIDEMARK = str(Path(sys.prefix) / "bin" / "tidemark")
KILLS = int(os.environ.get("TIDEMARK_KILLS", "100"))
STARTING = 0.1
"""Of processes, those that are killed while they start."""
LIVES_S = (0.5, 26.0)
"""How long the others live once they are ready: some die before they lead, for whoever led must be
silent for 15 s first; the rest at work."""
START_S = 120.0
STRUCK = 0.4
"""Of notices that are being answered, those over which their sender is killed."""
STEP_S = 240.0
"""So long a step may take, over some kills."""
STANDS_S, GOES_ON_S = 60, 40
"""Of data time."""


class Processes:
    """One process after the other, each killed after a while, until it is enough."""

    def __init__(self, folder: Path, seed: int, kills: int) -> None:
        self._folder = folder
        self._choice = random.Random(seed)
        self._wanted = kills
        self.kills = 0
        self._ended = threading.Event()
        self._struck = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        return self.kills >= self._wanted

    def strike(self) -> None:
        """Kill the one that runs now."""
        if not self.is_done:
            self._struck.set()

    def stop(self) -> None:
        self._ended.set()
        self._struck.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.is_set():
            process = self._started()
            lives_s = None if self.is_done else self._choice.uniform(*LIVES_S)
            if self._choice.random() > STARTING:
                self._await_ready(process)
            if not self._ended.is_set():
                self._struck.wait(lives_s)
            self._struck.clear()
            assert process.poll() is None, (self._folder / "log").read_text()[-2_000:]
            if lives_s is not None and not self._ended.is_set():
                process.kill()
                self.kills += 1
            else:
                process.send_signal(signal.SIGTERM)
            process.wait()

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        begun = self._ready()
        ends_s = time.monotonic() + START_S
        while self._ready() == begun and process.poll() is None and not self._ended.is_set():
            assert time.monotonic() < ends_s, "it does not start"
            self._struck.wait(0.1)
            self._struck.clear()

    def _ready(self) -> int:
        return (self._folder / "log").read_bytes().count(b"ready ")

    def _started(self) -> subprocess.Popen[bytes]:
        words = ["run", "--lake", str(self._folder / "lake")]
        words += ["--rules", str(self._folder / "rules.toml")]
        words += ["--receivers", str(self._folder / "telling.toml")]
        words += ["--database", f"sqlite:///{self._folder / 'tidemark.db'}"]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen([TIDEMARK, "alerts", *words], stdout=log, stderr=log)


class World:
    """The lake, and what is stored of its groups."""

    def __init__(self, folder: Path) -> None:
        self.story = Story(folder / "lake")
        self._broker: BronzeWriter = self.story.broker("b")
        self._lake = Lake.at(str(self.story.lake)).root
        self._address = f"sqlite:///{folder / 'tidemark.db'}"

    def go_on(self, seconds: int, report: Callable[[BronzeWriter, int], None]) -> None:
        for at_s in self.story.steps(self.story.at_s + seconds, self._broker, step_s=10):
            keeps_up(self._broker, "well", 10 * at_s)
            report(self._broker, at_s)
        run_to_the_end(driver_of(self.story.lake, evaluation=Evaluation(), buckets=1))

    def state_of(self, group: str) -> State | None:
        database = Database.at(self._address)
        try:
            held = steps.load(database, self._lake).alerts
            return next((one.state for one in held if one.labels["group"] == group), None)
        finally:
            database.close()

    def is_notified(self) -> bool:
        database = Database.at(self._address)
        try:
            return is_empty(database, self._lake)
        finally:
            database.close()


def until(holds: Callable[[], bool], what: str) -> None:
    ends_s = time.monotonic() + STEP_S
    while not holds():
        assert time.monotonic() < ends_s, what
        time.sleep(0.3)


def play(folder: Path, *, kills: int, seed: int) -> str:
    """Kill and start again while groups stand and go on; a line of figures."""
    groups, choice, running = 0, random.Random(seed), list[Processes]()
    failing = Failing(seed)

    def answered(path: str, body: bytes) -> Answer:
        if running and choice.random() < STRUCK:
            running[0].strike()
        return failing(path, body)

    (folder / "rules.toml").write_text(RULES.format(waits="0s"))
    with receiving(answered) as ledger:
        (folder / "telling.toml").write_text(TELLING.format(url=ledger.url))
        world = World(folder)
        world.go_on(20, lambda _broker, _at_s: None)
        processes = Processes(folder, seed, kills)
        running.append(processes)
        try:
            while not processes.is_done:
                one_more(world, f"k{groups}")
                groups += 1
            until(world.is_notified, "the outbox is empty")
        finally:
            processes.stop()
        return checked(ledger, groups, kills=processes.kills)


def one_more(world: World, group: str) -> None:
    """A group stands until that is stored, then goes on until that is."""
    world.go_on(STANDS_S, lambda broker, at_s: stands(broker, group, 100 + at_s))
    until(lambda: world.state_of(group) is State.FIRING, f"{group} fires")
    world.go_on(GOES_ON_S, lambda broker, at_s: keeps_up(broker, group, 10_000 + at_s))
    # The story is of long ago: who leads next forgets what has been over for more than a week.
    over = (State.RESOLVED, None)
    until(lambda: world.state_of(group) in over, f"{group} is resolved")


def checked(ledger: Ledger, groups: int, *, kills: int) -> str:
    """Silent but for figures when each group was notified to stand, and then to go on."""
    came = [one for one in ledger.received if one.status == 200]
    copies = Counter(one.headers["Idempotency-Key"] for one in came)
    first = {one.headers["Idempotency-Key"]: one for one in reversed(came)}
    notified: dict[str, list[str]] = {}
    for one in came:
        key = one.headers["Idempotency-Key"]
        assert one.body == first[key].body, "a second copy is the same notice"
        if one is first[key]:
            for alert in one.decoded["alerts"]:
                notified.setdefault(alert["labels"]["group"], []).append(alert["status"])
    assert notified == {f"k{number}": ["firing", "resolved"] for number in range(groups)}
    again = sum(count - 1 for count in copies.values())
    assert again <= kills, "a second copy without a kill"
    failures = sum(one.status != 200 for one in ledger.received)
    return (
        f"{kills} kills of `tidemark alerts run`, {groups} stalls, {len(copies)} notices, "
        f"none lost, {again} sent twice, {failures} refused by the server and sent again\n"
    )


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_each_stall_is_notified_once_over_a_hundred_kills(tmp_path: Path) -> None:
    sys.stdout.write(play(tmp_path, kills=KILLS, seed=7))
