"""`tidemark alerts` from outside: a process that is killed, and what people ask and say of it."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from deltalake import DeltaTable

from pipelines.lake.lake import Lake
from tests.integration.alerting.receiving_server import Ledger, receiving
from tests.integration.alerting.test_alerting_process import RULES, TELLING, two_groups
from tests.pipelines.emitted_in_steps import Story

pytestmark = pytest.mark.timeout(180)
TIDEMARK = str(Path(sys.prefix) / "bin" / "tidemark")


@dataclass
class Shop:
    """A lake with a group that stands, and a shell beside it."""

    folder: Path
    ledger: Ledger

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {"TIDEMARK_HOME": str(self.folder / "home")}

    @property
    def root(self) -> str:
        """What the lake is called."""
        return Lake.at(str(self.folder / "lake")).root

    def tidemark(self, *words: str, code: int = 0) -> str:
        """Run a command of alerts on the lake; what it answers, or why it does not."""
        said, aside = self.said(*words, code=code)
        return said or aside

    def said(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Its answer, and what it says beside it."""
        done = subprocess.run(
            [TIDEMARK, "alerts", *words, "--lake", str(self.folder / "lake")],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=self.environment,
        )
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    def alerts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.tidemark("list", "--all", "--json"))
        return found

    @contextmanager
    def party(self) -> Iterator[subprocess.Popen[str]]:
        """`tidemark alerts run`, killed at the end as a machine would lose it."""
        words = ["run", "--lake", str(self.folder / "lake")]
        words += ["--rules", str(self.folder / "rules")]
        words += ["--receivers", str(self.folder / "telling.toml"), "--metrics-port", "0"]
        with (self.folder / "log").open("a") as log:
            started = subprocess.Popen(
                [TIDEMARK, "alerts", *words],
                stdout=log,
                stderr=log,
                text=True,
                env=self.environment,
            )
            try:
                yield started
            finally:
                started.kill()
                started.wait()

    def notified(self) -> list[tuple[str, str]]:
        return [
            (one["status"], one["labels"]["group"])
            for request in self.ledger.received
            for one in request.decoded["alerts"]
        ]

    def history(self, fingerprint: str) -> list[tuple[int, str, str]]:
        """Number, kind and state of the changes of an alert, as the lake has them."""
        rows = DeltaTable(self.folder / "lake" / "gold" / "alerts").to_pyarrow_table().to_pylist()
        return sorted(
            (one["seq"], one["kind"], one["state"])
            for one in rows
            if one["fingerprint"] == fingerprint
        )

    def scraped(self) -> str:
        """What a Prometheus reads of the process that runs."""
        found = re.search(r"metrics=(\S+)", (self.folder / "log").read_text())
        assert found is not None
        return httpx.get(found[1], trust_env=False, timeout=30).text

    def await_notified(self, count: int) -> list[tuple[str, str]]:
        ends_s = time.monotonic() + 60
        while len(self.notified()) < count:
            assert time.monotonic() < ends_s, (self.folder / "log").read_text()
            time.sleep(0.1)
        return self.notified()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    story = Story(tmp_path_factory.mktemp("alerts") / "lake")
    broker = story.broker("b")
    for at_s in story.steps(60, broker):
        two_groups(broker, at_s)
    story.judge()
    return story.lake


@pytest.fixture
def shop(lake: Path, tmp_path: Path) -> Iterator[Shop]:
    (tmp_path / "lake").symlink_to(lake)
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "shop.toml").write_text(RULES.format(waits="0s"))
    with receiving() as ledger:
        (tmp_path / "telling.toml").write_text(TELLING.format(url=ledger.url))
        yield Shop(tmp_path, ledger)


def test_a_process_that_is_killed_again_and_again_notifies_a_stall_once(shop: Shop) -> None:
    with shop.party():
        assert shop.await_notified(1) == [("firing", "stuck")]
    for _ in range(2):
        with shop.party() as party:
            time.sleep(3)
            assert party.poll() is None
    assert shop.notified() == [("firing", "stuck")]
    (alert,) = shop.alerts()
    assert (alert["state"], alert["labels"]["group"]) == ("FIRING", "stuck")
    assert shop.history(alert["fingerprint"])[0] == (1, "FIRED", "FIRING")


def test_what_people_say_of_an_alert_is_kept_and_shown(shop: Shop) -> None:
    with shop.party():
        shop.await_notified(1)
        assert 'state="FIRING",muted="no"} 1\n' in shop.scraped()
    (alert,) = shop.alerts()
    page = alert["annotations"]["page_url"]
    assert page.startswith("/group/stuck?from=")
    name = alert["fingerprint"][:6]
    assert "stuck stands" in shop.tidemark("list")
    shown = shop.tidemark("show", name)
    assert re.search(r"labels +cluster=cluster-1, broker=b, group=stuck", shown), shown
    assert re.search(r"owner +shop\n", shown)
    assert f"  page        {page}\n" in shown
    assert re.search(r"rule +judged at .* UTC: 1 row\n", shown)
    assert "phase_us" not in shown
    assert re.search(r"GroupStands +\d\d:\d\d:\d\d  1 row$", shop.tidemark("rules"), re.MULTILINE)
    assert "acked" in shop.tidemark("ack", name, "--author", "ann", "--comment", "on it")
    said = shop.tidemark(
        "silence", 'group="stuck"', "--author", "bob", "--comment", "known", "--for", "1h"
    )
    silence = said.split()[1]
    line = shop.tidemark("list")
    assert "acked by ann" in line
    assert f"silenced by {silence}" in line
    shown = shop.tidemark("show", name)
    assert re.search(r"acked +by ann at .* UTC: on it\n", shown), shown
    assert re.search(rf'silenced +{silence}  active until .* group="stuck"  bob: known\n', shown)
    machine = json.loads(shop.tidemark("show", name, "--json"))
    assert (machine["ack"]["author"], machine["ack"]["comment"]) == ("ann", "on it")
    assert [one["silence_id"] for one in machine["silences"]] == [silence]
    assert silence in shop.tidemark("silences")
    shop.tidemark("unsilence", silence)
    assert shop.tidemark("silences") == "nothing is silenced\n"
    assert "silenced by" not in shop.tidemark("list")


def test_what_people_say_is_answered_as_json(shop: Shop) -> None:
    with shop.party():
        shop.await_notified(1)
    (alert,) = shop.alerts()
    said = ("--author", "ann", "--comment", "on it", "--json")
    acked = json.loads(shop.tidemark("ack", alert["fingerprint"][:6], *said))
    (held,) = shop.alerts()
    assert acked == held["ack"]
    assert (acked["fingerprint"], acked["author"]) == (alert["fingerprint"], "ann")

    silence = json.loads(shop.tidemark("silence", "group=stuck", *said))
    (listed,) = json.loads(shop.tidemark("silences", "--json"))
    assert silence == listed
    assert silence["created_us"] == silence["from_us"]
    assert silence["to_us"] - silence["from_us"] == 2 * 3600 * 1_000_000

    ended = json.loads(shop.tidemark("unsilence", silence["silence_id"], "--json"))
    assert ended["silence_id"] == silence["silence_id"]
    assert silence["from_us"] < ended["ended_us"] < silence["to_us"]
    assert json.loads(shop.tidemark("silences", "--json")) == []
    assert "one of `tidemark alerts silences`" in shop.tidemark(
        "unsilence", "nope", "--json", code=1
    )


def test_a_list_is_asked_for_by_what_is_wanted(shop: Shop) -> None:
    with shop.party():
        shop.await_notified(1)
    asked = ("--rule", "GroupStands", "--group", "stuck", "--severity", "critical")
    assert "stuck stands" in shop.tidemark("list", *asked, "--owner", "shop", 'group=~"st.*"')
    for other in (("--rule", "X"), ("--owner", "x"), ("--state", "pending"), ("group!=stuck",)):
        assert shop.tidemark("list", *other) == "no alert is as asked\n"
    assert "one of PENDING" in shop.tidemark("list", "--state", "odd", code=1)
    assert "is no matcher" in shop.tidemark("list", "stuck", code=1)


def test_a_caller_hears_when_nobody_watches(shop: Shop) -> None:
    never = f"no alert process has ever run for this lake: nobody watches it ({shop.root})\n"
    assert shop.said("list") == ("no alert is known to be open\n", f"tidemark alerts: {never}")
    assert shop.said("list", "--json") == ("[]\n", f"tidemark alerts: {never}")
    with shop.party():
        shop.await_notified(1)
        for words in (("list",), ("rules",), ("silences",)):
            assert shop.said(*words)[1] == ""
    ends_s = time.monotonic() + 60
    while not shop.said("list")[1]:
        assert time.monotonic() < ends_s
    shown, aside = shop.said("show", shop.alerts()[0]["fingerprint"])
    assert "stuck stands" in shown
    assert "nothing is heard of the alert process" in aside
    silenced = shop.said("silence", "group=stuck", "--author", "bob", "--comment", "known")
    assert "nothing is heard of the alert process" in silenced[1]


def test_a_silence_of_everything_is_refused(shop: Shop) -> None:
    said = ("--author", "bob", "--comment", "known")
    for matchers in (('nope=~".*"',), ('a!="b"', 'c=~"x|"'), ('group=""',)):
        assert "all alerts would be silenced" in shop.tidemark("silence", *matchers, *said, code=1)
    assert "silenced" in shop.tidemark("silence", 'nope=~".*"', 'group=~".+"', *said)


def test_a_silence_that_comes_back_says_when(shop: Shop) -> None:
    said = ("--author", "bob", "--comment", "backups", "--zone", "Europe/Berlin")
    when = ("--days", "sat,sun", "--at", "22:00", "--length", "8h")
    shop.tidemark("silence", "group=stuck", *when, *said)
    line = shop.tidemark("silences")
    assert "sat,sun at 22:00 for 8 h (Europe/Berlin), next 20" in line
    assert 'group="stuck"  bob: backups' in line


def test_who_is_silenced_before_is_not_notified(shop: Shop) -> None:
    shop.tidemark("silence", "group=stuck", "--author", "bob", "--comment", "known")
    with shop.party():
        ends_s = time.monotonic() + 60
        while not (shop.folder / "home").exists() or not shop.alerts():
            assert time.monotonic() < ends_s, (shop.folder / "log").read_text()
        time.sleep(2)
    assert shop.notified() == []


def test_one_that_is_not_there_is_a_sentence(shop: Shop) -> None:
    assert "none begins so" in shop.tidemark("show", "abc", code=1)
    assert "is no matcher" in shop.tidemark(
        "silence", "stuck", "--author", "bob", "--comment", "known", code=1
    )


def test_a_channel_is_tried(shop: Shop) -> None:
    words = ["test-channel", "hook", "--receivers", str(shop.folder / "telling.toml")]
    done = subprocess.run(
        [TIDEMARK, "alerts", *words], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "hook has it\n"
    ((request,),) = [shop.ledger.received]
    assert request.decoded["alerts"][0]["labels"]["alertname"] == "ChannelTest"

    done = subprocess.run(
        [TIDEMARK, "alerts", *words, "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    delivered = {"receiver": "hook", "delivered": True, "trouble": "", "error": ""}
    assert json.loads(done.stdout) == delivered


def test_a_channel_that_nobody_listens_at_is_said_in_a_sentence(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "telling.toml").write_text(TELLING.format(url=f"http://127.0.0.1:{port}"))
    words = ["test-channel", "hook", "--receivers", str(tmp_path / "telling.toml")]
    done = subprocess.run(
        [TIDEMARK, "alerts", *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr == (
        "tidemark alerts: hook does not have it: "
        f"127.0.0.1 port {port} cannot be reached: connection refused\n"
    )
    done = subprocess.run(
        [TIDEMARK, "alerts", *words, "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "receiver": "hook",
        "delivered": False,
        "trouble": "UNREACHABLE",
        "error": f"127.0.0.1 port {port} cannot be reached: connection refused",
    }
