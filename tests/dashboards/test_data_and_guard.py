"""The door to the lake keeps what is true and no more; the door to the pages lets in whom it
should.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import orjson
import polars as pl
import pytest
from deltalake import DeltaTable
from plotly.io.json import to_json_plotly
from typer.testing import CliRunner

from dashboards import commands
from dashboards.access.security import BODY_BYTES_MAX, Guard, refusal
from dashboards.page_context import PageContext
from dashboards.pages import group, overview
from dashboards.reads.cache import FrameCache
from dashboards.reads.lake_data import LakeData
from dashboards.web.app import build
from engine.foundation.errors import ConfigError, LakeError
from pipelines.lake.lake import Lake, whole_table
from pipelines.marts.lost_unread_messages import LOST_UNREAD_MESSAGES
from pipelines.marts.mart import GoldTable
from pipelines.marts.replaced_messages import REPLACED_MESSAGES
from pipelines.reading.catalogue import CONSUMER_LAG
from pipelines.reading.check_results import trust_at
from tests.asynchronous import awaited
from tests.dashboards.conftest import FRESH
from tests.dashboards.served import serving
from tests.failed_check import fail
from tests.gold_lake import END, START, write_gold_lake
from tests.lake_story import EMITTER, append_rows, complete_cycle


class TestCache:
    def test_many_askers_of_one_answer_cost_one_computation(self) -> None:
        cache, asked, begin = FrameCache(), [], threading.Event()

        def compute() -> pl.DataFrame:
            asked.append(1)
            begin.wait(5)
            return pl.DataFrame({"x": [1]})

        answers: list[pl.DataFrame] = []
        askers = [
            threading.Thread(target=lambda: answers.append(cache.get("key", compute)))
            for _ in range(8)
        ]
        for asker in askers:
            asker.start()
        begin.set()
        for asker in askers:
            asker.join(10)

        assert (len(asked), len(answers)) == (1, 8)

    def test_it_stays_within_its_bytes_and_forgets_what_was_not_asked_for(self) -> None:
        frame = pl.DataFrame({"x": list(range(1000))})
        cache = FrameCache(bytes_max=int(frame.estimated_size()) * 3)
        asked: list[int] = []

        def ask(key: int) -> None:
            cache.get(key, lambda: asked.append(key) or frame.clone())

        for key in (1, 2, 3, 1, 4, 1, 2):
            ask(key)

        assert cache.size_bytes <= frame.estimated_size() * 3
        assert asked == [1, 2, 3, 4, 2]

    def test_an_error_is_raised_and_not_kept(self) -> None:
        cache = FrameCache()

        def fail() -> pl.DataFrame:
            raise LakeError("torn")

        with pytest.raises(LakeError):
            cache.get("key", fail)
        assert cache.get("key", lambda: pl.DataFrame({"x": [1]})).height == 1


class TestLakeData:
    def test_a_pulse_is_equal_until_another_cycle_is_complete(self, tmp_path: Path) -> None:
        lake = write_gold_lake(tmp_path / "lake")
        data = LakeData(lake)
        before = data.pulse()
        assert before == data.pulse()
        assert before.data_end == END

        add_lag(lake, seconds=5)
        assert data.pulse() == before, "a cycle that is half written changes nothing"
        complete_cycle(lake, {EMITTER: (END + timedelta(seconds=5), 10**9)})

        assert data.pulse() != before
        assert data.pulse().data_end == END + timedelta(seconds=5)

    def test_all_a_page_shows_is_of_one_moment_whatever_is_written_meanwhile(
        self, tmp_path: Path
    ) -> None:
        lake = write_gold_lake(tmp_path / "lake")
        context = PageContext(LakeData(lake), lambda: FRESH)
        first = context.look("")
        add_lag(lake, seconds=5)
        complete_cycle(lake, {EMITTER: (END + timedelta(seconds=5), 10**9)})
        second = context.look("")
        later = context.look("", {"token": first.pulse.token})

        assert later.pulse == first.pulse, "a page's parts take the moment the page was given"
        assert later.data.newest_lag().equals(first.data.newest_lag())
        assert second.data.newest_lag()["observed_at"].max() == END + timedelta(seconds=5)
        assert context.look("", {"token": "never heard of"}).pulse == second.pulse

    def test_the_newest_state_is_carried_from_cycle_to_cycle_as_if_it_were_read_anew(
        self, tmp_path: Path
    ) -> None:
        lake = write_gold_lake(tmp_path / "lake")
        data = LakeData(lake)
        for step in range(1, 5):
            data.seen().newest_lag()
            add_lag(lake, seconds=200 * step - 50, queue_id=step % 4, seq=10**9 + step)
            end = END + timedelta(seconds=200 * step)
            complete_cycle(lake, {EMITTER: (end, 10**9 + step)})
            carried = data.seen().newest_lag()
            assert carried.equals(LakeData(lake).seen().newest_lag())
            begin, groups = end - timedelta(minutes=15), ["shipping", "billing"][: 1 + step % 2]
            followed = data.seen().lag_of(groups, begin, end)
            assert followed.equals(LakeData(lake).seen().lag_of(groups, begin, end))
        assert carried.height < 13, "what nobody reports any more is gone after the look-back"

    def test_header_and_tables_of_a_page_show_the_same_figures(self, tmp_path: Path) -> None:
        lake = write_gold_lake(tmp_path / "lake")
        end = END + timedelta(seconds=90)
        complete_cycle(lake, {EMITTER: (end, 10**9)})
        context = PageContext(LakeData(lake), lambda: end)
        summary, _, _, queues, _, stalls = group.content(context, "shipping", "", "dark")[2:8]
        worst = max(queues, key=lambda row: row["time_lag"])
        assert worst["time_lag_text"] == "8 min 4 s"
        assert "8 min 4 s" in str(summary)
        assert "It has stood for 8 min 4 s; 3,152 messages wait." in str(summary)
        assert "8 min 4 s" in str(stalls), "from the moment the message is in the listener"
        assert "at warehouse.reserve(warehouse.py:88)" in str(stalls), "where its listener stands"

    def test_what_is_withheld_is_read_once_a_run_of_the_checks(self, tmp_path: Path) -> None:
        lake = write_gold_lake(tmp_path / "lake")
        fail(lake, about_emitter=EMITTER)
        data = LakeData(lake)
        since = END - timedelta(minutes=15)
        before = data.seen()
        assert before.trust(since).failures
        assert {"dq_results", "dq_failures"} <= set(before.reading.versions)

        for step in range(1, 4):  # A cycle each: the range moves on, the checks did not run.
            complete_cycle(lake, {EMITTER: (END + timedelta(seconds=5 * step), 10**9)})
            moved, seen = since + timedelta(seconds=5 * step), data.seen()
            assert seen.trust(moved) == trust_at(LakeData(lake).seen().reading, since=moved)
            assert "dq_results" not in seen.reading.versions
            assert "dq_failures" not in seen.reading.versions

        fail(lake, about_emitter=EMITTER, about_group="shipping")
        again = data.seen()
        assert len(again.trust(since).failures) == 2
        assert "dq_results" in again.reading.versions

    def test_a_failure_counts_no_longer_once_every_key_was_reported_anew(
        self, tmp_path: Path
    ) -> None:
        lake = write_gold_lake(tmp_path / "lake")
        fail(lake, about_emitter=EMITTER)
        data = LakeData(lake)
        assert data.seen().trust().failures
        complete_cycle(lake, {EMITTER: (END + timedelta(minutes=20), 10**9)})
        assert data.seen().trust().failures == (), "in the same hour, and before what it rests on"

    def test_an_earlier_range_withholds_what_failed_in_it(self, story: Lake) -> None:
        seen = LakeData(story).seen()
        for minutes in (0, 5, 59, 61, 180):
            since = END - timedelta(minutes=minutes)
            assert seen.trust(since) == trust_at(seen.reading, since=since)

    def test_a_lake_that_is_made_anew_is_read_anew(self, tmp_path: Path) -> None:
        lake = write_gold_lake(tmp_path / "lake")
        data = LakeData(lake)
        assert data.seen().rows("dead_letters", START, END).height == 1

        (tmp_path / "lake").rename(tmp_path / "old")
        assert data.pulse().first_run
        again = write_gold_lake(tmp_path / "lake", seed=8)
        DeltaTable(again.gold("dead_letters")).delete()

        assert data.seen().rows("dead_letters", START, END).height == 0

    def test_a_torn_table_is_one_sentence(self, torn_story: Lake) -> None:
        with pytest.raises(LakeError, match=r"consumer_lag cannot be read .* replay the table"):
            LakeData(torn_story).seen().newest_lag()


def add_lag(lake: Lake, *, seconds: int, queue_id: int = 2, seq: int = 10**9) -> None:
    """One row more of a queue of `shipping`."""
    rows = whole_table(lake.table(lake.gold("consumer_lag"))).to_pylist()
    mine = [row for row in rows if row["group"] == "shipping" and row["queue_id"] == queue_id]
    newest = max(mine, key=lambda row: row["observed_at"])
    later = {"observed_at": END + timedelta(seconds=seconds), "seq": seq}
    append_rows(
        lake.gold("consumer_lag"), CONSUMER_LAG.columns, [{**newest, **later}], "observed_date"
    )


class TestCallbacks:
    def test_the_overview_answers_without_a_browser(self, story: Lake) -> None:
        context = PageContext(LakeData(story), lambda: FRESH)
        notice, body, strip, figure, size, sentence, *_ = overview.content(context, "", "dark")
        assert (notice, body) == (None, overview.SHOWN)
        assert len(strip) == 8
        assert size == {"height": figure["layout"]["height"]}
        assert sentence == (
            "This shows the time lag of 3 groups over time: 1 is not OK. The furthest behind is "
            "shipping: its time lag is 6 min 34 s now."
        )

    @pytest.mark.parametrize(
        ("lost", "figures"),
        [
            (
                REPLACED_MESSAGES,
                {
                    "offset": 9,
                    "queue_end": 8,
                    "reused_offsets": 2,
                    "outcome": "LOST",
                    "message_id_before": "OLD",
                    "message_id": "NEW",
                    "client_id": None,
                },
            ),
            (
                LOST_UNREAD_MESSAGES,
                {"from_offset": 4, "to_offset": 9, "messages": 5, "error_messages": 0},
            ),
        ],
        ids=lambda one: getattr(one, "name", ""),
    )
    def test_messages_that_a_group_lost_are_in_the_feed_and_on_the_group_s_page(
        self, tmp_path: Path, lost: GoldTable, figures: dict[str, Any]
    ) -> None:
        lake = write_gold_lake(tmp_path / "lake")
        evidence = "billing-1 had pulled OLD, and the broker lost it; NEW has its offset now"
        at = END - timedelta(seconds=30)
        row = {
            "observed_at": at,
            "cluster": "demo",
            "broker": "broker-a",
            "group": "billing",
            "topic": "orders",
            "queue_id": 1,
            **figures,
            "evidence": evidence,
            "emitter": EMITTER,
            "seq": 1,
            "observed_date": at.date(),
        }
        append_rows(lake.gold(lost.name), lost.columns, [row], "observed_date")
        context = PageContext(LakeData(lake), lambda: FRESH)
        feed = overview.content(context, "", "dark")[7]
        assert evidence.encode() in orjson.dumps(feed)
        pages = [group.content(context, name, "", "dark") for name in ("billing", "shipping")]
        assert [evidence.encode() in orjson.dumps(page) for page in pages] == [True, False]

    def test_what_a_page_is_given_is_plain_data_that_no_reader_puts_into_words_again(
        self, story: Lake
    ) -> None:
        context = PageContext(LakeData(story), lambda: FRESH)
        pages = (
            overview.content(context, "", "dark"),
            group.content(context, "shipping", "", "dark"),
            group.content(context, "nobody", "", "dark"),
        )
        for content in pages:
            assert json.loads(to_json_plotly(content)) == json.loads(orjson.dumps(content))

    def test_any_value_may_be_posted(self, story: Lake) -> None:
        context = PageContext(LakeData(story), lambda: FRESH)
        for search in (None, "?range=%00", "?from=x&to=y", "?" + "a" * 10_000):
            assert group.content(context, None, search, "<script>")[1] == group.HIDDEN
            assert group.content(context, "shipping", search, "<script>")[1] == group.SHOWN


HOSTS = ("127.0.0.1", "localhost", "::1")
JSON = {"content-type": "application/json", "content-length": "10"}


class TestGuard:
    @pytest.mark.parametrize(
        ("method", "headers", "status"),
        [
            ("GET", {"host": "127.0.0.1:8050"}, None),
            ("GET", {"host": "[::1]:8050"}, None),
            ("GET", {"host": "evil.example:8050"}, 421),
            ("GET", {"host": "127.0.0.1.evil.example"}, 421),
            ("GET", {}, 421),
            ("GET", {"host": "localhost", "content-length": "0"}, None),
            ("GET", {"host": "localhost", "content-length": "1"}, 413),
            ("POST", {"host": "localhost", **JSON}, None),
            ("POST", {"host": "localhost", "origin": "http://localhost", **JSON}, None),
            ("POST", {"host": "localhost", "origin": "http://evil.example", **JSON}, 403),
            ("POST", {"host": "localhost", "origin": "null", **JSON}, 403),
            ("POST", {"host": "localhost:1", "origin": "http://localhost:2", **JSON}, 403),
            ("POST", {"host": "localhost", "sec-fetch-site": "cross-site", **JSON}, 403),
            ("POST", {"host": "localhost", "content-type": "text/plain"}, 415),
            ("POST", {"host": "localhost", **JSON, "content-length": str(BODY_BYTES_MAX + 1)}, 413),
            ("POST", {"host": "localhost", **JSON, "content-length": "-1"}, 413),
        ],
    )
    def test_who_may_ask(self, method: str, headers: dict[str, str], status: int | None) -> None:
        refused = refusal(method, headers, HOSTS)
        assert (refused[0] if refused else None) == status

    async def test_every_answer_carries_the_policy_and_health_shows_the_horizon(
        self, story: Lake
    ) -> None:
        application: Any = build(story, clock=lambda: FRESH)
        transport = httpx.ASGITransport(app=application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as web:
            paths = ("/healthz", "/", "/group/x%2Fy", "/docs", "/openapi.json", "/nowhere")
            health, index, page, *missing = [await web.get(path) for path in paths]
        assert health.json() == {"status": "ok", "data_end": END.isoformat()}
        assert 'id="react-entry-point"' in index.text
        assert 'id="react-entry-point"' in page.text
        assert [answer.status_code for answer in missing] == [404, 404, 404]
        for answer in (health, index, page, *missing):
            policy = answer.headers["content-security-policy"]
            scripts = next(part for part in policy.split("; ") if part.startswith("script-src"))
            assert "unsafe" not in scripts
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"

    @pytest.mark.parametrize("excess", [0, 1])
    def test_a_body_without_a_length_is_read_up_to_the_limit_and_no_further(
        self, excess: int
    ) -> None:
        pieces = [b"x" * 65_536] * (BODY_BYTES_MAX // 65_536) + [b"y" * excess] * 1000
        taken: list[bytes] = []
        seen: list[bytes] = []
        statuses: list[int] = []

        async def receive() -> dict[str, Any]:
            taken.append(pieces[len(taken)])
            more = len(taken) < len(pieces)
            return {"type": "http.request", "body": taken[-1], "more_body": more}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        async def application(scope: Any, receive: Any, send: Any) -> None:
            seen.append((await receive())["body"])
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        guard = Guard(application, allowed_hosts=HOSTS, headers=[])
        fields = {"host": "localhost", "content-type": "application/json"}
        headers = [(name.encode(), value.encode()) for name, value in fields.items()]
        scope = {"type": "http", "method": "POST", "headers": headers}
        awaited(guard(scope, receive, send))
        if excess:
            assert (statuses, seen) == ([413], []), "the application does not hear of it"
            assert sum(map(len, taken)) == BODY_BYTES_MAX + 1
        else:
            assert statuses == [200]
            assert list(map(len, seen)) == [BODY_BYTES_MAX]

    @pytest.mark.parametrize("method", ["POST", "GET", "HEAD", "OPTIONS", "DELETE"])
    @pytest.mark.parametrize("path", ["/", "/healthz", "/_dash-update-component"])
    def test_a_body_in_chunks_without_end_is_refused_and_its_connection_closed(
        self, story: Lake, method: str, path: str
    ) -> None:
        with serving(story, FRESH) as address:
            host, port = address.removeprefix("http://").split(":")
            with socket.create_connection((host, int(port)), 20) as connection:
                connection.sendall(
                    f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\n"
                    "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
                )
                sent_bytes, piece = 0, b"10000\r\n" + b" " * 65_536 + b"\r\n"
                with contextlib.suppress(OSError):
                    while sent_bytes < 200 * BODY_BYTES_MAX:
                        connection.sendall(piece)
                        sent_bytes += 65_536
                assert sent_bytes < 50 * BODY_BYTES_MAX, "it ends the connection"
            assert httpx.get(f"{address}/healthz", timeout=20).status_code == 200


class TestCommand:
    def test_an_address_that_others_reach_needs_a_word(self, story: Lake) -> None:
        done = CliRunner().invoke(commands.app, ["--lake", story.root, "--host", "0.0.0.0"])
        assert isinstance(done.exception, ConfigError)
        assert "--open-to-network" in str(done.exception)

    def test_a_port_in_use_is_one_sentence(self, story: Lake) -> None:
        with commands.listen("127.0.0.1", 0) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(ConfigError, match="Address already in use"):
                commands.listen("127.0.0.1", port)

    def test_it_says_when_it_serves_and_stops_on_a_signal(self, story: Lake) -> None:
        program = [str(Path(sys.prefix) / "bin" / "tidemark"), "dash", "--lake", story.root]
        process = subprocess.Popen(
            [*program, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline().strip()
            assert line.startswith("dash http://127.0.0.1:")
            health = httpx.get(f"{line.removeprefix('dash ')}healthz", timeout=20)
            assert health.json()["status"] == "ok"
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (0, "")
