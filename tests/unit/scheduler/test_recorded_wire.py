"""Row F2: what real XXL-Job parties have said is read whole and written in the same bytes."""

from __future__ import annotations

import json

import pytest

from pipelines.scheduler.wire.fields import Malformed
from pipelines.scheduler.wire.messages import (
    Answer,
    Blocking,
    Dialect,
    LogPage,
    LogRequest,
    Registration,
    RunRequest,
    RunResult,
    decode_job,
    decode_results,
    encode_job,
    encode_results,
)
from tests.recorded_xxl import Recorded, to_admin, to_executor


def bodies(calls: tuple[Recorded, ...], ending: str) -> list[bytes]:
    return [call.request for call in calls if call.path.endswith(ending) and call.request]


def test_each_recorded_callback_is_written_in_the_same_bytes() -> None:
    recorded = bodies(to_admin(), "/callback")
    assert len(recorded) == 5
    for body in recorded:
        assert encode_results(decode_results(body), Dialect.UP_TO_3_4) == body


def test_registrations_are_written_in_the_same_bytes() -> None:
    recorded = bodies(to_admin(), "/registry") + bodies(to_admin(), "/registryRemove")
    assert len(recorded) == 2
    for body in recorded:
        assert Registration.decode(body).encode() == body


@pytest.mark.parametrize(
    ("ending", "decode"),
    [("/run", RunRequest.decode), ("/log", LogRequest.decode)],
)
def test_requests_of_an_admin_are_written_with_the_same_fields(ending: str, decode: type) -> None:
    recorded = bodies(to_executor(), ending)
    assert recorded
    for body in recorded:
        assert json.loads(decode(body).encode()) == json.loads(body)


def test_kill_and_idle_beat_name_a_job() -> None:
    recorded = bodies(to_executor(), "/kill") + bodies(to_executor(), "/idleBeat")
    for body in recorded:
        assert json.loads(encode_job(decode_job(body))) == json.loads(body)
    assert [decode_job(body) for body in recorded] == [7, 999, 7, 7]


def test_answers_of_the_java_executor_are_written_in_the_same_bytes() -> None:
    """But for `data`, which holds the payload once more, under its name of later versions."""
    for call in to_executor():
        assert call.response is not None
        answer = Answer.decode(call.response)
        again = answer.encode()
        if answer.content is None:
            assert again == call.response
        else:
            decoded = json.loads(again)
            assert decoded.pop("data") == decoded["content"]
            assert decoded == json.loads(call.response)
            without = again[: again.index(b',"data":')] + b"}"
            assert without == call.response


def test_a_recorded_log_page_is_read() -> None:
    pages = [
        LogPage.of(Answer.decode(call.response).content)
        for call in to_executor()
        if call.path == "/log" and call.response
    ]
    assert [(page.from_line, page.to_line, page.is_end) for page in pages] == [
        (1, 4, False),
        (99, 4, False),
    ]
    assert "hello p1 shard 1/3" in pages[0].text
    assert not pages[1].text


def test_a_recorded_run_is_read() -> None:
    run = RunRequest.decode(bodies(to_executor(), "/run")[0])
    assert run == RunRequest(
        job_id=7,
        log_id=101,
        log_time_ms=1795239931064,
        handler="demo",
        parameters="p1",
        blocking=Blocking.SERIAL,
        glue_time_ms=1795239931064,
        shard_index=1,
        shard_total=3,
    )


def test_words_of_both_sides_of_a_change_are_read() -> None:
    result = RunResult(5, 1_700_000_000_000, 500, "bad")
    for dialect in Dialect:
        assert decode_results(encode_results([result], dialect)) == [result]
    assert b'{"callbackList":[{"logId":5,"logDateTime":' in encode_results(
        [result], Dialect.FROM_3_5
    )
    later = b'{"code":200,"msg":"Success","data":{"fromLineNum":1,"toLineNum":1,"logContent":"x"}}'
    assert LogPage.of(Answer.decode(later).content).text == "x"


def test_a_run_says_when_it_was_planned_for_only_if_that_is_known() -> None:
    run = RunRequest(job_id=1, log_id=2, log_time_ms=3)
    assert b"fireTime" not in run.encode()
    planned = RunRequest(job_id=1, log_id=2, log_time_ms=3, fire_time_ms=0)
    assert RunRequest.decode(planned.encode()).fire_time_ms == 0


def test_unknown_and_null_fields_are_left_alone() -> None:
    body = b'{"jobId":1,"logId":2,"logDateTime":3,"executorParams":null,"later":{"x":[1]}}'
    assert RunRequest.decode(body) == RunRequest(job_id=1, log_id=2, log_time_ms=3, glue_type="")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", ""),
        (b"[]", ""),
        (b"\xff\xfe", ""),
        (b'{"jobId":1e999}', ""),
        (b"[" * 100_000, ""),
        (b'{"jobId":"1"}', "jobId"),
        (b'{"jobId":true}', "jobId"),
        (b'{"jobId":1.0}', "jobId"),
        (b'{"jobId":-1}', "jobId"),
        (b'{"jobId":2147483648}', "jobId"),
        (b'{"jobId":1}', "logId"),
        (b'{"jobId":1,"logId":9223372036854775808}', "logId"),
        (b'{"jobId":1,"logId":1,"logDateTime":253402300800000}', "logDateTime"),
        (b'{"jobId":1,"logId":1,"logDateTime":1,"executorHandler":{}}', "executorHandler"),
        (b'{"jobId":1,"logId":1,"logDateTime":1,"executorBlockStrategy":"X"}',
         "executorBlockStrategy"),
        (b'{"jobId":1,"logId":1,"logDateTime":1,"broadcastTotal":3,"broadcastIndex":3}',
         "broadcastIndex"),
        (b'{"jobId":1,"logId":1,"logDateTime":1,"broadcastTotal":100001}', "broadcastTotal"),
        (b'{"jobId":1,"logId":1,"logDateTime":1,"executorParams":"' + b"x" * 65_536 + b'"}',
         "executorParams"),
        (b'{"x":"' + b"x" * 5 * 1024 * 1024 + b'"}', ""),
    ],
    ids=range(19),
)  # fmt: skip
def test_a_run_that_is_none_is_refused_by_the_name_of_what_is_wrong(
    body: bytes, field: str
) -> None:
    with pytest.raises(Malformed) as refusal:
        RunRequest.decode(body)
    assert refusal.value.field == field
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    ("group", "app"),
    [("OTHER", "app"), ("EXECUTOR", ""), ("EXECUTOR", "a,b"), ("EXECUTOR", "<b>"),
     ("EXECUTOR", "a\nb"), ("EXECUTOR", "a" * 65)],
)  # fmt: skip
def test_a_registration_under_no_name_is_refused(group: str, app: str) -> None:
    body = Registration(app, "http://127.0.0.1:9999/", group).encode()
    with pytest.raises(Malformed):
        Registration.decode(body)


def test_a_callback_without_an_end_is_refused() -> None:
    with pytest.raises(Malformed):
        decode_results(b'[{"logId":1,"logDateTim":1,"handleCode":0}]')
    with pytest.raises(Malformed):
        decode_results(b"[" + b",".join([b"{}"] * 5_001) + b"]")


def test_a_result_that_says_too_much_is_kept_by_its_beginning_and_its_end() -> None:
    (result,) = decode_results(
        b'[{"logId":1,"logDateTim":1,"handleCode":500,"handleMsg":"' + b"y" * 20_000 + b'z"}]'
    )
    assert 14_900 < len(result.message) <= 15_000
    assert result.message.startswith("yy")
    assert result.message.endswith("yz")
    assert "characters are left out" in result.message
