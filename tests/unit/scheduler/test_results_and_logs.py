"""Results are sent until somebody has them; logs are read by lines; what is on disk survives."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.errors import ConfigError
from pipelines.scheduler.executor.log_files import LogFile, LogFiles
from pipelines.scheduler.executor.log_pages import LINE_BYTES_MAX, PAGE_BYTES_MAX, page_of
from pipelines.scheduler.executor.reports import BATCH_MAX, Reports
from pipelines.scheduler.executor.run_files import CUT_OFF, NEVER_BEGUN, RunFiles, only_one
from pipelines.scheduler.wire.messages import LogRequest, RunResult

DAY_MS = 1_795_239_931_064  # 2026-11-21


def a_result(log_id: int) -> RunResult:
    return RunResult(log_id, DAY_MS, 200, f"result {log_id}")


def test_results_wait_longer_and_longer_for_an_admin_and_go_together_when_it_is_back() -> None:
    reports = Reports()
    for log_id in range(3):
        reports.add(a_result(log_id))
    now_ms, waits = 0, []
    for _ in range(7):
        assert len(reports.take(now_ms=now_ms)) == 3
        reports.unreachable(now_ms=now_ms)
        wait_ms = reports.due_in_ms(now_ms=now_ms)
        assert wait_ms is not None
        assert reports.take(now_ms=now_ms + wait_ms - 1) == []
        waits.append(wait_ms)
        now_ms += wait_ms
    assert waits == [1000, 2000, 4000, 8000, 16000, 30000, 30000]
    assert reports.take(now_ms=now_ms) == reports.delivered() == [a_result(at) for at in range(3)]
    assert len(reports) == 0
    assert reports.due_in_ms(now_ms=now_ms) is None


def test_a_result_that_an_admin_never_takes_holds_up_no_other() -> None:
    reports = Reports()
    for log_id in range(250):
        reports.add(a_result(log_id))
    now_ms, had = 0, []
    for _ in range(200):
        batch = reports.take(now_ms=now_ms)
        assert len(batch) <= BATCH_MAX
        if not batch:
            now_ms += reports.due_in_ms(now_ms=now_ms) or 0
        elif a_result(13) in batch:
            reports.refused(now_ms=now_ms)
        else:
            had += reports.delivered()
    assert sorted(result.log_id for result in had) == [at for at in range(250) if at != 13]
    assert len(reports) == 1
    assert now_ms > 200_000, "the one that is refused is tried again, ever more seldom"


@given(st.lists(st.binary(max_size=6).map(lambda part: part.replace(b"\r", b"\n")), max_size=20),
       st.integers(0, 12), st.booleans())  # fmt: skip
def test_a_page_is_the_lines_from_one_on(
    chunks: list[bytes], from_line: int, finished: bool
) -> None:
    lines = b"".join(chunks).splitlines(keepends=True) if chunks else []
    lines = b"".join(chunks).split(b"\n")
    rest = lines.pop()
    whole = [line + b"\n" for line in lines] + ([rest] if finished and rest else [])
    page = page_of(chunks, from_line=from_line, is_finished=finished)
    assert page.text == b"".join(whole[max(0, from_line - 1) :]).decode("utf-8", "replace")
    assert (page.from_line, page.to_line) == (from_line, len(whole))
    assert page.is_end == finished


def test_a_reader_who_goes_on_sees_all_of_a_long_log_once() -> None:
    log = b"".join(b"%07d %s\n" % (number, b"x" * 90) for number in range(20_000))
    chunks = [log[at : at + 65_536] for at in range(0, len(log), 65_536)]
    read, line, pages = "", 1, 0
    while True:
        page = page_of(chunks, from_line=line, is_finished=True)
        read, line, pages = read + page.text, page.to_line + 1, pages + 1
        assert len(page.text) <= PAGE_BYTES_MAX + 100
        if page.is_end:
            break
    assert read.encode() == log
    assert pages == 4


def test_a_line_without_end_is_cut() -> None:
    page = page_of([b"x" * 65_536] * 100 + [b"\nnext\n"], from_line=1, is_finished=False)
    assert page.text == "x" * LINE_BYTES_MAX + "\nnext\n"


def test_a_log_that_is_full_says_so_once(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "a" / "1.log", bytes_max=10)
    for _ in range(5):
        log.write(b"1234567\n")
    log.close()
    written = (tmp_path / "a" / "1.log").read_bytes()
    assert written == b"1234567\n12\n-- the log is full: what follows is not kept --\n"


def test_logs_lie_where_xxl_job_has_them_and_old_days_go(tmp_path: Path) -> None:
    logs = LogFiles(tmp_path)
    log = logs.open(101, DAY_MS)
    log.write(b"one\ntwo\n")
    log.close()
    assert (tmp_path / "logs" / "2026-11-21" / "101.log").exists()
    asked = LogRequest(101, DAY_MS, 2)
    assert logs.page(asked, is_finished=False).text == "two\n"
    (tmp_path / "logs" / "mine").mkdir()
    assert logs.tidy(today=date(2027, 1, 1), retention_days=2) == []
    assert logs.tidy(today=date(2026, 12, 21), retention_days=30) == []
    assert logs.tidy(today=date(2026, 12, 22), retention_days=30) == ["2026-11-21"]
    assert (tmp_path / "logs" / "mine").exists()
    gone = logs.page(asked, is_finished=True)
    assert (gone.to_line, gone.is_end) == (0, True)


def test_what_an_executor_that_died_had_in_hand_is_named(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    for log_id in range(1, 5):
        files.accept((log_id, DAY_MS))
    files.start((2, DAY_MS))
    files.finish(a_result(3))
    files.forget((4, DAY_MS))
    (tmp_path / "runs" / "1.new").write_bytes(b"half")
    (tmp_path / "runs" / "2.json").write_bytes(b'{"state":')
    left = RunFiles(tmp_path).left()
    assert left == [
        RunResult(1, DAY_MS, 500, NEVER_BEGUN),
        RunResult(2, DAY_MS, 500, CUT_OFF),
        a_result(3),
    ]
    assert RunFiles(tmp_path).left() == left, "what was reported once is reported in the same words"


def test_two_executors_do_not_share_a_folder(tmp_path: Path) -> None:
    with only_one(tmp_path), pytest.raises(ConfigError), only_one(tmp_path):
        pass
    with only_one(tmp_path):
        pass
