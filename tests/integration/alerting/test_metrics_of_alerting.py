"""What a Prometheus reads of the platform: from gold and the database, over a real socket."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.foundation.errors import ConfigError
from pipelines.alerting.alerts import State, entry_of
from pipelines.alerting.metrics.families import Process
from pipelines.alerting.metrics.page import Page
from pipelines.alerting.metrics.port import serving
from pipelines.alerting.store.steps import Step, take
from pipelines.base.time_units import micros, moment_at
from pipelines.database import leads
from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from pipelines.reading.retirements import retire
from tests.gold_lake import END, write_gold_lake
from tests.integration.alerting.stores import SECOND_US, a_notice, an_alert, sqlite_address
from tests.pipelines.bronze_lake import BronzeWriter
from tests.pipelines.in_process import SHORT, driver_of, run_to_the_end

NOW_US = micros(END) + 7 * SECOND_US
HOSTILE = 'a"b\\c\nd\ud800'
Told = dict[tuple[str, ...], float]


def samples_of(text: str, name: str, *labels: str) -> Told:
    """The samples of a metric by some of their labels."""
    families = {one.name: one for one in text_string_to_metric_families(text)}
    return {
        tuple(sample.labels[label] for label in labels): sample.value
        for sample in families[name].samples
    }


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return write_gold_lake(Path(tmp_path_factory.mktemp("measured")))


@pytest.fixture
def database(tmp_path: Path, lake: Lake) -> Database:
    opened = Database.at(sqlite_address(tmp_path))
    lead = leads.acquire(opened, "alerts", "one", now_us=NOW_US, lasts_us=SECOND_US)
    alerts = [an_alert(1, rule=HOSTILE), an_alert(2), an_alert(3, state=State.PENDING)]
    entry = entry_of(alerts[0], "FIRED", observed_us=NOW_US, recorded_us=NOW_US)
    step = Step(alerts, notices=[a_notice("n1")], entries=[entry])
    take(opened, lake.root, step, lead=lead, now_us=NOW_US)
    return opened


def page(lake: Lake, database: Database, **settings: object) -> str:
    return Page(
        lake,
        database,
        process=lambda: Process(leads=True, rules=5, look_s=0.25),
        now_us=lambda: NOW_US,
        **settings,
    ).text()


def test_a_scrape_returns_lag_states_stalls_alerts_and_ages(lake: Lake, database: Database) -> None:
    text = page(lake, database)
    lag = samples_of(text, "tidemark_group_lag_messages", "group")
    assert set(lag) == {("billing",), ("shipping",), ("ledger",)}
    assert lag["shipping",] > 0
    assert samples_of(text, "tidemark_group_lag_seconds", "group")["shipping",] > 60
    assert ("shipping", "STALLED") in samples_of(text, "tidemark_group_state", "group", "state")
    stalls = samples_of(text, "tidemark_stalled_windows", "group", "kind")
    assert stalls == {("shipping", "FROZEN_HEAD"): 1}
    alerts = samples_of(text, "tidemark_alerts", "alertname", "state")
    assert alerts["StalledWindow", "FIRING"] == alerts["StalledWindow", "PENDING"] == 1
    assert alerts['a"b\\c\nd?', "FIRING"] == 1
    assert samples_of(text, "tidemark_receiver_waiting", "receiver") == {("on-call",): 1}
    assert samples_of(text, "tidemark_history_changes_waiting") == {(): 1}
    assert samples_of(text, "tidemark_alerting_leads") == {(): 1}
    assert samples_of(text, "tidemark_alerting_look_seconds") == {(): 0.25}
    assert samples_of(text, "tidemark_pipeline_freshness_seconds") == {(): 7}
    assert set(samples_of(text, "tidemark_emitter_silent", "broker").values()) == {0}
    delays = samples_of(text, "tidemark_shipping_delay_seconds", "broker")
    assert all(value >= 0 for value in delays.values())
    assert sum(samples_of(text, "tidemark_metric_series_left_out", "metric").values()) == 0
    assert "queue_lag" not in text
    rebalances = samples_of(text, "tidemark_rebalances", "group")
    assert rebalances == {("billing",): 0, ("shipping",): 0, ("ledger",): 0}


def test_an_emitter_whose_broker_was_taken_out_is_not_reported_as_silent(
    tmp_path: Path, database: Database
) -> None:
    for broker, last_s in (("sold", 5), ("there", 600)):
        writer = BronzeWriter(tmp_path / "lake", broker=broker)
        for second, kind in ((0, "BOOT"), (last_s, "SHUTDOWN")):
            writer.at(second)
            writer.report("lifecycle", kind=kind)
        writer.ship()
    run_to_the_end(driver_of(tmp_path / "lake", evaluation=SHORT))
    lake = Lake.at(str(tmp_path / "lake"))
    silences = "tidemark_emitter_silence_seconds"
    assert samples_of(page(lake, database), silences, "broker") == {("sold",): 595, ("there",): 0}

    retire(lake, "cluster-1/sold/0", by="me@here", reason="sold", now=moment_at(writer.now_us))
    text = page(lake, database)
    assert samples_of(text, silences, "broker") == {("there",): 0}
    assert samples_of(text, "tidemark_emitter_silent", "broker") == {("there",): 0}


def test_queues_are_exported_when_asked_for_and_what_finds_no_room_is_counted(
    lake: Lake, database: Database
) -> None:
    whole = page(lake, database, queues=True)
    assert len(samples_of(whole, "tidemark_queue_lag_messages", "group", "queue")) == 12
    text = page(lake, database, queues=True, series_max=5)
    assert len(samples_of(text, "tidemark_queue_lag_messages", "group", "queue")) == 5
    left = samples_of(text, "tidemark_metric_series_left_out", "metric")
    assert left["tidemark_queue_lag_messages",] == 7
    assert left["tidemark_group_state",] == 0


def test_a_lake_or_database_that_cannot_be_read_is_named_and_the_rest_stands(
    lake: Lake, database: Database, tmp_path: Path
) -> None:
    broken = tmp_path / "state" / "plans" / "_delta_log"
    broken.mkdir(parents=True)
    (broken / "00000000000000000000.json").write_text("no json")
    text = page(Lake.at(str(tmp_path)), database)
    readable = samples_of(text, "tidemark_source_readable", "source")
    assert readable == {("lake",): 0, ("database",): 1}
    assert "tidemark_pipeline_freshness_seconds" not in text


async def test_it_is_served_to_who_asks_by_a_known_name_and_to_nobody_else() -> None:
    made: list[str] = []

    def text() -> str:
        made.append("x")
        if len(made) > 1:
            raise ValueError("a bug of ours")
        return "tidemark_x 1\n"

    async with serving(text, "127.0.0.1", 0) as port, httpx.AsyncClient() as client:
        address = f"http://127.0.0.1:{port}"
        answer = await client.get(f"{address}/metrics")
        assert (answer.status_code, answer.text) == (200, "tidemark_x 1\n")
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        foreign = await client.get(f"{address}/metrics", headers={"Host": "evil.example"})
        assert foreign.status_code == 403
        assert (await client.get(f"{address}/other")).status_code == 404
        assert (await client.post(f"{address}/metrics")).status_code == 405
        assert (await client.get(f"{address}/metrics")).status_code == 500
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /metrics HTTP/1.1\r\n" + b"x" * 20_000)
        with suppress(ConnectionError):
            await writer.drain()
            assert await reader.read() == b""  # A head without an end is not waited for.
        writer.close()
        with pytest.raises(ConfigError, match="an address that is free"):
            async with serving(text, "127.0.0.1", port):
                pass
