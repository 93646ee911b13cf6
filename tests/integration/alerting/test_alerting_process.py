"""From facts to a notice: a lake, rules in files, a database and a receiver, all of them real."""

from __future__ import annotations

import asyncio
import random
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from pipelines.alerting.alerts import State
from pipelines.alerting.gold_view import Gold
from pipelines.alerting.history import Carrier, HistoryTable
from pipelines.alerting.matchers import matcher_of
from pipelines.alerting.notification_settings import TellingFile
from pipelines.alerting.outbox.courier import Chances, Courier
from pipelines.alerting.runner import Alerting
from pipelines.alerting.silence_rows import kept_silence
from pipelines.alerting.silences import Silence
from pipelines.alerting.store import people, steps
from pipelines.base.settings import Evaluation
from pipelines.database import leads
from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from pipelines.reading.moment import Moment
from tests.integration.alerting.alert_process import is_empty
from tests.integration.alerting.receiving_server import Ledger, receiving
from tests.integration.client.cluster_users import eventually
from tests.pipelines.bronze_lake import START_US, BronzeWriter
from tests.pipelines.emitted_in_steps import Story, keeps_up, stands
from tests.pipelines.in_process import driver_of, run_to_the_end

SECOND_US = 1_000_000
LAKE = "the lake"
RULES = """
[[rule]]
name = "GroupStands"
table = "group_state"
when = "state in ('STALLED', 'STOPPED')"
for = "{waits}"
severity = "critical"
owner = "shop"
[rule.annotations]
summary = "{{{{ labels.group }}}} stands, {{{{ lag_messages }}}} messages wait"
"""
BROKEN = """
[[rule]]
name = "Broken"
tables = ["group_state"]
sql = "SELECT cluster, broker FROM group_state WHERE CAST(state AS INT) > 0"
[rule.annotations]
summary = "no state is a number"
"""
TELLING = """
allow_private_hosts = ["127.0.0.1"]
[[receivers]]
name = "hook"
kind = "webhook"
url = "{url}/hook"
[routing]
receiver = "hook"
group_by = ["group"]
group_wait = "0s"
group_interval = "1s"
"""


@dataclass
class Room:
    """A lake that is written step by step, and the process that looks at it by a clock of ours."""

    folder: Path
    story: Story
    ledger: Ledger
    now_us: int = START_US
    parties: list[Alerting] = field(default_factory=list)

    def write_rules(self, text: str = "", *, waits: str = "10s") -> None:
        (self.folder / "rules.toml").write_text(text or RULES.format(waits=waits))

    def party(self, name: str = "one", gold: Gold | None = None) -> Alerting:
        """A process, as it is after its start; gold: another one than that of the lake."""
        database = Database.at(f"sqlite:///{self.folder / 'tidemark.db'}")
        threads = ThreadPoolExecutor(2)
        chances = Chances(lambda: self.now_us, random.random, lambda: secrets.token_hex(16))
        party = Alerting(
            gold or Gold(Lake.at(str(self.story.lake))),
            database,
            lake=LAKE,
            holder=name,
            rules=lambda: [self.folder / "rules.toml"],
            places=TellingFile(self.folder / "telling.toml", {}, threads),
            courier=lambda channels: Courier(database, LAKE, channels, chances),
            now_us=lambda: self.now_us,
            carry=Carrier(database, LAKE, HistoryTable(Lake.at(str(self.story.lake)))).carry,
        )
        self.parties.append(party)
        return party

    def go_on(self, party: Alerting, seconds: int, *brokers: BronzeWriter) -> Iterator[int]:
        """The cluster goes on; gold and the process follow each ten seconds."""
        for at_s in self.story.steps(self.story.at_s + seconds, *brokers, step_s=10):
            yield at_s
            for broker in brokers:
                broker.ship()
            run_to_the_end(driver_of(self.story.lake, evaluation=Evaluation(), buckets=1))
            self.now_us = START_US + at_s * SECOND_US
            party.look()
            party.keep_history()

    def database(self) -> Database:
        return Database.at(f"sqlite:///{self.folder / 'tidemark.db'}")

    def states(self) -> dict[str, State]:
        """What is stored of each group's alert."""
        held = steps.load(self.database(), LAKE)
        return {alert.labels["group"]: alert.state for alert in held.alerts}

    async def notified(self, party: Alerting) -> list[tuple[str, str, str]]:
        """Deliver what waits: status, group and summary of each alert that was notified."""
        until = asyncio.Event()
        running = asyncio.create_task(party.run(until))
        await eventually(lambda: is_empty(self.database(), LAKE), "the outbox is empty")
        until.set()
        await running
        return [
            (one["status"], one["labels"]["group"], one["annotations"].get("summary", ""))
            for request in self.ledger.received
            for one in request.decoded["alerts"]
        ]


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    with receiving() as ledger:
        (tmp_path / "telling.toml").write_text(TELLING.format(url=ledger.url))
        made = Room(tmp_path, Story(tmp_path / "lake"), ledger)
        made.write_rules()
        yield made


def two_groups(broker: BronzeWriter, at_s: int, *, stuck: bool = True) -> None:
    """One keeps up; the other stands at 5 from the beginning, or has caught up."""
    keeps_up(broker, "quick", 10 * at_s)
    if stuck:
        stands(broker, "stuck", 100 + at_s)
    else:
        keeps_up(broker, "stuck", 10_000 + at_s)


async def test_a_group_that_stands_is_notified_once_and_that_it_goes_on_too(
    room: Room,
) -> None:
    party, broker = room.party(), room.story.broker("b")
    for at_s in room.go_on(party, 60, broker):
        two_groups(broker, at_s)
    assert room.states() == {"stuck": State.FIRING}
    for at_s in room.go_on(party, 30, broker):
        two_groups(broker, at_s, stuck=False)
    assert room.states() == {"stuck": State.RESOLVED}
    notified = await room.notified(party)
    assert [(status, group) for status, group, _ in notified] == [
        ("firing", "stuck"),
        ("resolved", "stuck"),
    ]
    assert notified[0][2].startswith("stuck stands, ")


async def test_a_notice_about_an_observed_cluster_says_that_its_facts_are_polled(
    room: Room,
) -> None:
    party, observer = room.party(), room.story.broker("theirs")
    observer.emitter = "cluster-1/theirs/observer"
    observer.report("lifecycle", kind="OBSERVED", observed_by="observer", report_each_ms=10_000)
    for at_s in room.go_on(party, 60, observer):
        two_groups(observer, at_s)
    await room.notified(party)
    (alert,) = room.ledger.received[0].decoded["alerts"]
    said = "watched from outside each 10 s: times are right to ± 10 s"
    assert alert["annotations"]["observed"] == said


async def test_what_fires_neither_begins_anew_nor_is_notified_again_after_a_restart(
    room: Room,
) -> None:
    first, broker = room.party(), room.story.broker("b")
    for at_s in room.go_on(first, 60, broker):
        two_groups(broker, at_s)
    assert len(await room.notified(first)) == 1
    fired = steps.load(room.database(), LAKE).alerts
    second = room.party("two")
    for at_s in room.go_on(second, 20, broker):
        two_groups(broker, at_s)
    assert len(await room.notified(second)) == 1
    now = steps.load(room.database(), LAKE).alerts
    assert [one.fired_at_us for one in now] == [one.fired_at_us for one in fired]


def test_a_second_process_decides_nothing_until_the_first_one_is_gone(room: Room) -> None:
    first, second, broker = room.party(), room.party("two"), room.story.broker("b")
    for at_s in room.go_on(first, 20, broker):
        two_groups(broker, at_s)
    second.look()
    assert first.leads
    assert not second.leads
    for at_s in room.go_on(second, 40, broker):
        two_groups(broker, at_s)
    assert second.leads
    first.look()
    assert not first.leads
    assert room.states() == {"stuck": State.FIRING}


def test_a_broken_file_of_rules_leaves_the_old_ones_in_force(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    party, broker = room.party(), room.story.broker("b")
    for at_s in room.go_on(party, 10, broker):
        two_groups(broker, at_s)
    room.write_rules("[[rule]]\nname = 'GroupStands'\nwhen = 'nonsense'\n")
    for at_s in room.go_on(party, 50, broker):
        two_groups(broker, at_s)
    assert room.states() == {"stuck": State.FIRING}
    assert [record for record in caplog.records if "the rules in force stay" in record.message]
    assert sum("the rules in force stay" in record.message for record in caplog.records) == 1


def test_a_rule_that_is_new_is_held_against_gold_that_stands(room: Room) -> None:
    room.write_rules(waits="1h")
    party, broker = room.party(), room.story.broker("b")
    for at_s in room.go_on(party, 60, broker):
        two_groups(broker, at_s)
    assert room.states() == {"stuck": State.PENDING}
    room.write_rules(RULES.format(waits="0s").replace("GroupStands", "StandsAtOnce"))
    party.look()
    held = steps.load(room.database(), LAKE)
    assert {(one.rule, one.state) for one in held.alerts} >= {("StandsAtOnce", State.FIRING)}


def test_a_database_that_is_replaced_by_a_copy_is_read_anew(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    party, broker = room.party(), room.story.broker("b")
    for at_s in room.go_on(party, 10, broker):
        two_groups(broker, at_s)
    with (
        closing(sqlite3.connect(room.folder / "tidemark.db")) as there,
        closing(sqlite3.connect(room.folder / "copy.db")) as copy,
    ):
        there.backup(copy)
    for at_s in room.go_on(party, 50, broker):
        two_groups(broker, at_s)
    assert room.states() == {"stuck": State.FIRING}
    for file in room.folder.glob("tidemark.db-*"):
        file.unlink()
    (room.folder / "copy.db").rename(room.folder / "tidemark.db")
    assert not room.states()
    assert not party.look()
    assert not party.leads
    assert "tidemark.db is another file than it was" in caplog.text
    room.now_us += 10 * SECOND_US
    party.look()
    assert room.states() == {"stuck": State.PENDING}
    room.now_us += 10 * SECOND_US
    for at_s in room.go_on(party, 20, broker):
        two_groups(broker, at_s)
    assert room.states() == {"stuck": State.FIRING}


class SlowGold(Gold):
    """A lake that does not answer until it may."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake)
        self.may = threading.Event()

    def moment(self) -> Moment | None:
        assert self.may.wait(60)
        return super().moment()


async def test_a_leader_that_looks_for_longer_than_its_lease_goes_on_to_lead(room: Room) -> None:
    slow = SlowGold(Lake.at(str(room.story.lake)))
    first, second, until = room.party(gold=slow), room.party("two"), asyncio.Event()
    running = asyncio.create_task(first.run(until))
    role = f"alerting of {LAKE}"

    def leads_at(seconds: int) -> bool:
        now_us = START_US + seconds * SECOND_US
        return leads.holder_of(room.database(), role, now_us=now_us) == "one"

    await eventually(lambda: leads_at(0), "the first one leads")
    for at_s in (0, 14):  # Of its clock: the lake is silent for longer than the lease lasts.
        room.now_us = START_US + at_s * SECOND_US
        await eventually(partial(leads_at, at_s + 14), "it says that it is there")
        assert not await asyncio.to_thread(second.look)
        assert not second.leads
    slow.may.set()
    until.set()
    await running


def test_how_each_rule_fared_last_survives_a_restart(room: Room) -> None:
    """And goes with its rule."""
    room.write_rules(RULES.format(waits="10s") + BROKEN)
    party, broker = room.party(), room.story.broker("b")
    for at_s in room.go_on(party, 60, broker):
        two_groups(broker, at_s)
    before = steps.judged_of(room.database(), LAKE)
    assert before["GroupStands"].matched == 1
    assert before["GroupStands"].judged_us == room.now_us
    assert (before["Broken"].outcome, before["Broken"].sound_us) == ("EVAL_ERROR", None)
    second = room.party("two")
    second.look()
    assert steps.judged_of(room.database(), LAKE) == before
    room.write_rules()
    for at_s in room.go_on(second, 20, broker):
        two_groups(broker, at_s)
    now = steps.judged_of(room.database(), LAKE)
    assert now.keys() == {"GroupStands"}
    assert now["GroupStands"].judged_us == room.now_us


async def test_who_is_silenced_is_not_notified(room: Room) -> None:
    party, broker = room.party(), room.story.broker("b")
    silence = Silence(
        "s1", (matcher_of('group="stuck"'),), START_US, START_US + 3600 * SECOND_US, "ann", "known"
    )
    people.add_silence(room.database(), LAKE, kept_silence(silence, created_us=START_US))
    for at_s in room.go_on(party, 60, broker):
        two_groups(broker, at_s)
    assert room.states() == {"stuck": State.FIRING}
    assert await room.notified(party) == []


def test_a_broker_that_falls_silent_resolves_nothing(room: Room) -> None:
    party = room.party()
    broker, other = room.story.broker("b"), room.story.broker("c")
    for at_s in room.go_on(party, 60, broker, other):
        two_groups(broker, at_s)
        keeps_up(other, "elsewhere", at_s)
    for at_s in room.go_on(party, 60, other):
        keeps_up(other, "elsewhere", at_s)
    assert room.states()["stuck"] is State.FIRING


LAKE_RULES = """
[[rule]]
name = "Late"
table = "pipeline"
when = "age_ms > 2m or cycle is null"
for = "1m"
[rule.annotations]
summary = "gold is late"
"""


@pytest.mark.parametrize("damage", ["moved away", "not readable"])
async def test_that_the_lake_is_gone_is_notified_though_nothing_can_be_read(
    room: Room, damage: str
) -> None:
    room.write_rules(RULES.format(waits="0s") + LAKE_RULES)
    (room.folder / "telling.toml").write_text(
        TELLING.format(url=room.ledger.url).replace('["group"]', '["alertname"]')
    )
    party, broker = room.party(), room.story.broker("b")
    for at_s in room.go_on(party, 60, broker):
        two_groups(broker, at_s)
    root = Path(str(room.story.lake))
    if damage == "moved away":
        root.rename(root.with_name("elsewhere"))
    else:
        for log in root.glob("**/_delta_log/*.json"):
            log.write_text("this is no commit")
    for _ in range(60):
        room.now_us += 5 * SECOND_US
        party.look()
        party.keep_history()
    there = {one.rule: one.state for one in steps.load(room.database(), LAKE).alerts}
    assert there == {"GroupStands": State.FIRING, "Late": State.FIRING}
    # Where the lake was, nothing is made that it would find when it comes back.
    assert root.exists() is (damage == "not readable")


async def test_owners_of_the_receivers_file_are_read_again_and_wrong_ones_change_nothing(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    room.write_rules(RULES.format(waits="10s").replace('owner = "shop"\n', ""))
    file = room.folder / "telling.toml"
    telling = file.read_text()
    owners = '[[owners]]\nowner = "{}"\nmatchers = [\'group=~"stu.*"\']\n'

    def owner() -> list[str]:
        return [alert.owner for alert in steps.load(room.database(), LAKE).alerts]

    file.write_text(telling + owners.format("first team"))
    party, broker = room.party(), room.story.broker("b")
    for at_s in room.go_on(party, 60, broker):
        two_groups(broker, at_s)
    assert owner() == ["first team"]

    file.write_text(telling + owners.format("another team"))
    party.look()  # No new cycle: the file alone has changed.
    assert owner() == ["another team"]

    file.write_text(telling + owners.format("a third team").replace("=~", "~"))
    party.look()
    assert owner() == ["another team"]
    assert "owners 1: matchers" in caplog.text
