"""kill -9 at any moment: every notice is sent, in order, and twice only where nobody could know.

The checker holds the ledger of the server that was sent to against the script. A second copy of a
notice is right only when the process that sent the first was killed, and each kill leaves at most
one for each receiver, since a receiver has one sender, and that one notice in its hands. So does an
answer that does not come in time, as on a machine with much else to do; the processes log those.
"""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path

import pytest

from pipelines.alerting.store.steps import Cursor, load
from pipelines.database.database import Database
from tests.integration.alerting.alert_process import RECEIVERS, notices_of
from tests.integration.alerting.receiving_server import Answer, Ledger, receiving
from tests.integration.alerting.stores import LAKE, postgresql_address, sqlite_address

ROOT = Path(__file__).parents[3]
LOG = "processes.log"
END_S = 110
"""So long the last process may take for what is left: on a machine with much else to do."""


class Failing:
    """A server that fails now and then, having written nothing down."""

    def __init__(self, seed: int) -> None:
        self._choice = random.Random(seed)
        self._lock = threading.Lock()

    def __call__(self, _path: str, _body: bytes) -> Answer:
        with self._lock:
            fails = self._choice.random() < 0.1
        return (503, {}, b"later") if fails else (200, {}, b"ok")


class Processes:
    """One process after another over one database."""

    def __init__(
        self, address: str, folder: Path, ledger: Ledger, cycles: int, *, timeout_s: int = 2
    ) -> None:
        self._address = address
        self._folder = folder
        self._ledger = ledger
        self._cycles = cycles
        self._timeout_s = timeout_s
        self.running = self.start()

    def start(self) -> subprocess.Popen[str]:
        file = self._folder / "receivers.toml"
        lines = ['allow_private_hosts = ["127.0.0.1"]']
        lines += [
            f'[[receivers]]\nname = "{name}"\nkind = "webhook"\ntimeout_s = {self._timeout_s}\n'
            f'url = "{self._ledger.url}/{name}"\n'
            for name in RECEIVERS
        ]
        file.write_text("\n".join(lines))
        module = "tests.integration.alerting.alert_process"
        command = [sys.executable, "-m", module, self._address, str(file), str(self._cycles)]
        with (self._folder / LOG).open("a") as log:
            return subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def end(self) -> None:
        """Wait until it has carried all."""
        printed, _ = self.running.communicate(timeout=END_S)
        assert printed == "done\n", (self._folder / LOG).read_text()[-4_000:]
        assert self.running.returncode == 0

    def kill(self) -> None:
        """kill -9."""
        self.running.kill()
        self.running.communicate()


def play(address: str, folder: Path, *, kills: int, cycles: int, seed: int) -> str:
    """Kill and start again, then let it end; what the checker finds, and a line of figures."""
    choice = random.Random(seed)
    done_kills = 0
    with receiving(Failing(seed)) as ledger, ExitStack() as stack:
        processes = Processes(address, folder, ledger, cycles)
        stack.callback(processes.kill)
        while done_kills < kills:
            seen = len(ledger.received)
            wanted = seen + choice.randint(1, 6)
            wait = threading.Event()
            for _ in range(4_000):
                if len(ledger.received) >= wanted or processes.running.poll() is not None:
                    break
                wait.wait(0.005)
            wait.wait(choice.random() * 0.05)
            assert processes.running.poll() is None, "the script ended before the kills"
            processes.kill()
            done_kills += 1
            processes.running = processes.start()
        processes.end()
        return checked(ledger, address, folder / LOG, kills=kills, cycles=cycles)


def checked(ledger: Ledger, address: str, log: Path, *, kills: int, cycles: int) -> str:
    """Silent but for figures when everything was sent as it should."""
    database = Database.at(address)
    assert load(database, LAKE).cursor == Cursor("run", cycles)
    database.close()
    wanted = [notice for cycle in range(1, cycles + 1) for notice in notices_of(cycle)]
    came = [received for received in ledger.received if received.status == 200]
    sent_count = Counter(received.headers["Idempotency-Key"] for received in came)
    names = {notice.notice_id.replace("-", "_"): notice for notice in wanted}

    assert sent_count.keys() == names.keys(), "lost, or sent though nobody decided it"
    late = log.read_text().count("no answer within")
    assert ledger.at_once_max == 1 or late, "a receiver had two senders"
    again = Counter[str]()
    for name, count in sent_count.items():
        again[names[name].receiver] += count - 1
    assert all(count <= kills + late for count in again.values()), again
    order = defaultdict(list)
    for received in came:
        notice = names[received.headers["Idempotency-Key"]]
        order[notice.receiver, notice.group_key].append(notice.notice_id)
    for of_group in order.values():
        once = [name for name, _ in itertools.groupby(of_group)]
        assert once == sorted(set(of_group)), "out of order"
    return (
        f"{kills} kills, {len(wanted)} notices, {sum(again.values())} sent twice, "
        f"{late} answers that did not come in time"
    )


@pytest.mark.timeout(240)
def test_nothing_is_lost_over_a_few_kills(tmp_path: Path) -> None:
    sys.stdout.write(play(sqlite_address(tmp_path), tmp_path, kills=6, cycles=30, seed=1))


@pytest.mark.timeout(240)
def test_of_two_processes_one_decides_and_no_receiver_hears_both(tmp_path: Path) -> None:
    address = sqlite_address(tmp_path)
    with receiving(Failing(4)) as ledger, ExitStack() as stack:
        both = [Processes(address, tmp_path, ledger, 40, timeout_s=20) for _ in range(2)]
        for processes in both:
            stack.callback(processes.kill)
        for processes in both:
            processes.end()
        checked(ledger, address, tmp_path / LOG, kills=0, cycles=40)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_nothing_is_lost_over_a_hundred_kills(tmp_path: Path) -> None:
    sys.stdout.write(play(sqlite_address(tmp_path), tmp_path, kills=100, cycles=250, seed=2))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_is_lost_over_kills_on_postgresql(tmp_path: Path) -> None:
    with postgresql_address() as address:
        sys.stdout.write(play(address, tmp_path, kills=20, cycles=80, seed=3))
