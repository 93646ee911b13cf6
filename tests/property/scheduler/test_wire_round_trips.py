"""What is written is read as it was meant; whatever bytes come are read, or refused by name."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from pipelines.scheduler.wire.fields import Malformed
from pipelines.scheduler.wire.messages import (
    Answer,
    Blocking,
    Dialect,
    Glue,
    LogPage,
    LogRequest,
    Registration,
    RunRequest,
    RunResult,
    decode_job,
    decode_kill,
    decode_results,
    encode_results,
)
from tests.recorded_xxl import to_admin, to_executor

INT = st.integers(0, 2**31 - 1)
LONG = st.integers(0, 2**63 - 1)
TIME_MS = st.integers(0, 253_402_300_799_999)
TEXT = st.text(max_size=60)
"""Without lone surrogates, which no JSON carries."""
DECODERS = (
    RunRequest.decode,
    LogRequest.decode,
    Registration.decode,
    Answer.decode,
    decode_job,
    decode_kill,
    decode_results,
)
SAMPLES = tuple(
    body for call in (*to_admin(), *to_executor()) for body in (call.request, call.response) if body
)


@st.composite
def runs(draw: st.DrawFn) -> RunRequest:
    total = draw(st.integers(1, 100_000))
    return RunRequest(
        job_id=draw(INT),
        log_id=draw(LONG),
        log_time_ms=draw(TIME_MS),
        handler=draw(TEXT),
        parameters=draw(TEXT),
        blocking=draw(st.sampled_from(Blocking)),
        timeout_s=draw(INT),
        glue_type=draw(st.sampled_from(Glue)),
        glue_source=draw(TEXT),
        glue_time_ms=draw(TIME_MS),
        shard_index=draw(st.integers(0, total - 1)),
        shard_total=total,
        fire_time_ms=draw(st.none() | TIME_MS),
    )


@given(runs())
def test_a_run_comes_back_as_it_was(run: RunRequest) -> None:
    assert RunRequest.decode(run.encode()) == run


@given(
    st.lists(st.builds(RunResult, LONG, TIME_MS, st.integers(1, 2**31 - 1), TEXT), max_size=5),
    st.sampled_from(Dialect),
)
def test_results_come_back_as_they_were(results: list[RunResult], dialect: Dialect) -> None:
    assert decode_results(encode_results(results, dialect)) == results


@given(st.builds(LogPage, INT, INT, TEXT, st.booleans()))
def test_a_log_page_comes_back_inside_its_answer(page: LogPage) -> None:
    assert LogPage.of(Answer.decode(Answer(content=page.as_content()).encode()).content) == page


@given(st.text(st.characters(codec=None, categories=None), max_size=40))
def test_an_answer_carries_any_text_and_nothing_that_html_would_read(text: str) -> None:
    body = Answer(500, text).encode()
    assert not set(b"<>&'=") & set(body)
    assert Answer.decode(body).message == text.encode("utf-8", "replace").decode()


@given(st.data())
def test_bytes_of_strangers_are_read_or_refused_by_name(data: st.DataObject) -> None:
    body = bytearray(data.draw(st.sampled_from(SAMPLES) | st.binary(max_size=80)))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.sampled_from([b"", b"-", b"9" * 25, b'"', b"{", b"]", b"null", b"\xff", b"1e9"])
        )
    for decode in DECODERS:
        with contextlib.suppress(Malformed):
            decode(bytes(body))
