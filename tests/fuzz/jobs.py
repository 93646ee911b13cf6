"""The scheduler under fire: what executors and centres say to each other, where executors say they
are, and rules of cron.

What is accepted must also make sense: a value that was read is written and read again as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC

from pipelines.scheduler.cron import cron_rule, next_fire_ms
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.messages import (
    Answer,
    Dialect,
    LogPage,
    LogRequest,
    Registration,
    RunRequest,
    decode_job,
    decode_kill,
    decode_results,
    encode_job,
    encode_kill,
    encode_results,
)
from tests.recorded_xxl import to_admin, to_executor

AFTER_MS = 1_780_000_000_000
WIRE_SAMPLES = [
    bytes([number]) + body
    for number, body in enumerate(
        body
        for call in (*to_admin(), *to_executor())
        for body in (call.request, call.response)
        if body
    )
]
ADDRESS_SAMPLES = [
    b"http://10.0.0.1:9999/",
    b"http://[::1]:9999/x/",
    b"https://jobs.example:443",
    b"http://.",
]
CRON_SAMPLES = [b"0 0/5 8-18 ? * MON-FRI", b"0 0 0 L-3 2 ? 2028", b"5,7/9 * * 15W * ?"]


def wire_message(data: bytes) -> None:
    """A body of a call; its first byte says of which."""
    if data:
        _READERS[data[0] % len(_READERS)](data[1:])


def executor_address(data: bytes) -> None:
    """Where an executor says it is."""
    address = Address.parse(data.decode("utf-8", "replace"))
    assert address.host, "an address without a place"
    assert 0 < address.port < 65_536, "a port that there is not"
    assert address.path.startswith("/"), "a path of something else"
    assert address.path.endswith("/"), "calls are below it"


def cron_text(data: bytes) -> None:
    """A rule; what is accepted has its times in order."""
    rule = cron_rule(data.decode("utf-8", "replace"))
    first = next_fire_ms(rule, AFTER_MS, UTC)
    if first is not None:
        assert first > AFTER_MS, "a time that has been"
        second = next_fire_ms(rule, first, UTC)
        assert second is None or second > first, "times go back"


def _run(body: bytes) -> None:
    run = RunRequest.decode(body)
    assert RunRequest.decode(run.encode()) == run, "a run is read as another"


def _log(body: bytes) -> None:
    request = LogRequest.decode(body)
    assert LogRequest.decode(request.encode()) == request, "a question is read as another"


def _registration(body: bytes) -> None:
    registration = Registration.decode(body)
    assert Registration.decode(registration.encode()) == registration, "as another"


def _answer(body: bytes) -> None:
    answer = Answer.decode(body)
    again = Answer.decode(answer.encode())
    assert (again.code, again.is_success) == (answer.code, answer.is_success), "as another"
    page = LogPage.of(answer.content)
    assert LogPage.of(page.as_content()) == page, "a page is read as another"


def _job(body: bytes) -> None:
    job_id = decode_job(body)
    assert decode_job(encode_job(job_id)) == job_id, "another job"


def _kill(body: bytes) -> None:
    kill = decode_kill(body)
    assert decode_kill(encode_kill(*kill)) == kill, "another run"


def _results(body: bytes) -> None:
    results = decode_results(body)
    for dialect in Dialect:
        assert decode_results(encode_results(results, dialect)) == results, "other results"


_READERS: tuple[Callable[[bytes], None], ...] = (
    *(_registration, _results, _run, _log, _answer, _job, _kill),
)
