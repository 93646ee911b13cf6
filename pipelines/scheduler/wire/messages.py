"""Encodes and decodes messages between a centre and an executor, without I/O.

| call         | asked by | body                                                  | answer holds |
|--------------|----------|-------------------------------------------------------|--------------|
| beat         | centre   | none                                                  | nothing      |
| idleBeat     | centre   | {"jobId":7}                                           | nothing      |
| run, trigger | centre   | RunRequest; 200 means accepted, the result comes later| nothing      |
| kill         | centre   | {"jobId":7}; ours with the "logId" that is meant      | nothing      |
| log          | centre   | LogRequest                                            | LogPage      |
| registry     | executor | Registration; registryRemove likewise                 | nothing      |
| callback     | executor | results, an array (≤ 3.4) or {"callbackList":[…]}     | nothing      |

Versions differ in three words: the time of a log row is `logDateTim` (sic) in callback and log up
to 3.4 and `logDateTime` after; an answer's payload is `content` up to 3.2 and `data` after; `run`
becomes `trigger` in 3.5. Both words are read everywhere, and both are written where a reader leaves
unknown ones alone.

Ours say more to each other, in fields that others read past: run and log carry `fireTime`, what the
run is for; kill the run that is meant; and the answer to log with a `fireTime` has `taken`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum
from typing import Any, Final

from pipelines.scheduler.result_words import MESSAGE_CHARS_MAX, head_and_tail
from pipelines.scheduler.wire.fields import (
    INT_MAX,
    LONG_MAX,
    TIME_MS_MAX,
    Fields,
    Malformed,
    parsed,
    plain,
    written,
)

NAME_CHARS_MAX: Final = 255
APP_CHARS_MAX: Final = 64
ADDRESS_CHARS_MAX: Final = 255
PARAMETERS_CHARS_MAX: Final = 65_535
SOURCE_CHARS_MAX: Final = 4 * 1024 * 1024
LOG_PAGE_CHARS_MAX: Final = 4 * 1024 * 1024
RESULTS_MAX: Final = 5_000
"""In one callback."""
SHARDS_MAX: Final = 100_000
DISCARDED: Final = "block strategy effect：Discard Later"
"""How an executor refuses a run under DISCARD_LATER, in the Java executor's words: by them the
centre knows that nothing is wrong."""


class Code(IntEnum):
    """What an answer or a result comes to; a result may carry other codes, which are failures."""

    SUCCESS = 200
    FAIL = 500
    TIMED_OUT = 502


class Blocking(StrEnum):
    """What becomes of a run that comes while the job's last one is at work."""

    SERIAL = "SERIAL_EXECUTION"  # It waits.
    DISCARD_LATER = "DISCARD_LATER"  # It is refused.
    COVER_EARLY = "COVER_EARLY"  # What is at work or waits is stopped for it.


class Dialect(Enum):
    """Which side of the change of words a peer stands on."""

    UP_TO_3_4 = "3.4"
    FROM_3_5 = "3.5"


class Glue(StrEnum):
    """What a run runs: a handler, or source that the centre keeps."""

    BEAN = "BEAN"
    GROOVY = "GLUE_GROOVY"
    SHELL = "GLUE_SHELL"
    PYTHON = "GLUE_PYTHON"
    PYTHON2 = "GLUE_PYTHON2"
    NODEJS = "GLUE_NODEJS"
    POWERSHELL = "GLUE_POWERSHELL"
    PHP = "GLUE_PHP"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call is answered, always with HTTP status 200."""

    code: int = Code.SUCCESS
    message: str = ""
    content: object = None
    """A LogPage's fields, for log; else None."""

    @property
    def is_success(self) -> bool:
        """Did the other side do what it was asked?"""
        return self.code == Code.SUCCESS

    def encode(self) -> bytes:
        """The payload goes out under both names, so that either version finds it."""
        fields: dict[str, Any] = {"code": int(self.code)}
        if self.message:
            fields["msg"] = plain(head_and_tail(self.message), MESSAGE_CHARS_MAX)
        if self.content is not None:
            fields |= {"content": self.content, "data": self.content}
        return written(fields)

    @classmethod
    def decode(cls, body: bytes) -> Answer:
        """Raises Malformed."""
        fields = Fields.of(parsed(body))
        return cls(
            fields.integer("code", low=-INT_MAX),
            head_and_tail(fields.text("msg", chars_max=len(body), default="")),
            fields.value("data", "content"),
        )


def refused(message: str) -> Answer:
    """An answer that says no, and why."""
    return Answer(Code.FAIL, message)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run of a job, by one executor."""

    job_id: int
    log_id: int
    log_time_ms: int
    """When the centre made the run's row; with `log_id` it names the run, and its log file."""
    handler: str = ""
    parameters: str = ""
    blocking: Blocking = Blocking.SERIAL
    timeout_s: int = 0
    """0: as long as it takes."""
    glue_type: str = Glue.BEAN
    glue_source: str = ""
    glue_time_ms: int = 0
    """When the source was edited last."""
    shard_index: int = 0
    shard_total: int = 1
    fire_time_ms: int | None = None
    """When the run was planned for; None when the centre does not say (XXL-Job's does not)."""

    def encode(self) -> bytes:
        """As a centre sends it. An executor that knows no `fireTime` leaves it alone."""
        fields: dict[str, Any] = {
            "jobId": self.job_id,
            "executorHandler": self.handler,
            "executorParams": self.parameters,
            "executorBlockStrategy": self.blocking.value,
            "executorTimeout": self.timeout_s,
            "logId": self.log_id,
            "logDateTime": self.log_time_ms,
            "glueType": self.glue_type,
            "glueSource": self.glue_source,
            "glueUpdatetime": self.glue_time_ms,
            "broadcastIndex": self.shard_index,
            "broadcastTotal": self.shard_total,
        }
        if self.fire_time_ms is not None:
            fields["fireTime"] = self.fire_time_ms
        return written(fields)

    @classmethod
    def decode(cls, body: bytes) -> RunRequest:
        """Raises Malformed."""
        fields = Fields.of(parsed(body))
        total = max(1, fields.integer("broadcastTotal", high=SHARDS_MAX, default=1))
        strategy = fields.text("executorBlockStrategy", chars_max=NAME_CHARS_MAX, default="")
        if strategy not in {"", *Blocking}:
            raise Malformed("executorBlockStrategy", f"not one of {', '.join(Blocking)}")
        fire_time_ms = fields.integer("fireTime", high=TIME_MS_MAX, default=-1)
        return cls(
            job_id=_job_id(fields),
            log_id=_log_id(fields),
            log_time_ms=_log_time_ms(fields),
            handler=fields.text("executorHandler", chars_max=NAME_CHARS_MAX, default=""),
            parameters=fields.text("executorParams", chars_max=PARAMETERS_CHARS_MAX, default=""),
            blocking=Blocking(strategy or Blocking.SERIAL),
            timeout_s=max(0, fields.integer("executorTimeout", low=-INT_MAX, default=0)),
            glue_type=fields.text("glueType", chars_max=NAME_CHARS_MAX, default=""),
            glue_source=fields.text("glueSource", chars_max=SOURCE_CHARS_MAX, default=""),
            glue_time_ms=fields.integer("glueUpdatetime", high=TIME_MS_MAX, default=0),
            shard_index=fields.integer("broadcastIndex", high=total - 1, default=0),
            shard_total=total,
            fire_time_ms=None if fire_time_ms < 0 else fire_time_ms,
        )


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Lines of a run's log, from one on; the first line is 1."""

    log_id: int
    log_time_ms: int
    from_line: int
    fire_time_ms: int | None = None
    """What the run is for, as it was sent. With it one of our executors says whether it took the
    run; one of XXL-Job reads past it."""

    def encode(self) -> bytes:
        """With both words for the time."""
        fields = {
            "logDateTim": self.log_time_ms,
            "logDateTime": self.log_time_ms,
            "logId": self.log_id,
            "fromLineNum": self.from_line,
        }
        if self.fire_time_ms is not None:
            fields["fireTime"] = self.fire_time_ms
        return written(fields)

    @classmethod
    def decode(cls, body: bytes) -> LogRequest:
        """Raises Malformed."""
        fields = Fields.of(parsed(body))
        fire_time_ms = fields.integer("fireTime", high=TIME_MS_MAX, default=-1)
        return cls(
            _log_id(fields),
            _log_time_ms(fields),
            fields.integer("fromLineNum", default=1),
            None if fire_time_ms < 0 else fire_time_ms,
        )


class Taken(StrEnum):
    """Whether an executor took a run, by its own book."""

    YES = "YES"
    NO = "NO"
    UNSURE = "UNSURE"
    """The run was sent before the book begins."""


@dataclass(frozen=True, slots=True)
class LogPage:
    """Lines `from_line` to `to_line` of a log. Beyond its end the text is empty, and `to_line` is
    the last line that there is."""

    from_line: int
    to_line: int
    text: str
    is_end: bool
    """No line will follow. The Java executor never says so: whoever reads looks at the run."""
    taken: str | None = None
    """A word of Taken, from one of our executors that was asked about a certain run."""

    def as_content(self) -> dict[str, Any]:
        """What an Answer carries."""
        fields: dict[str, Any] = {
            "fromLineNum": self.from_line,
            "toLineNum": self.to_line,
            "logContent": plain(self.text, LOG_PAGE_CHARS_MAX),
            "isEnd": self.is_end,
        }
        return fields if self.taken is None else fields | {"taken": self.taken}

    @classmethod
    def of(cls, content: object) -> LogPage:
        """Raises Malformed."""
        fields = Fields.of(content, "content")
        return cls(
            fields.integer("fromLineNum"),
            fields.integer("toLineNum"),
            fields.text("logContent", chars_max=LOG_PAGE_CHARS_MAX, default=""),
            fields.flag("isEnd", default=False),
            fields.text("taken", chars_max=NAME_CHARS_MAX, default="") or None,
        )


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run has ended."""

    log_id: int
    log_time_ms: int
    code: int
    message: str = ""


def encode_results(results: Sequence[RunResult], dialect: Dialect) -> bytes:
    """The body of a callback."""
    key = "logDateTim" if dialect is Dialect.UP_TO_3_4 else "logDateTime"
    listed = []
    for result in results:
        one: dict[str, Any] = {
            "logId": result.log_id,
            key: result.log_time_ms,
            "handleCode": int(result.code),
        }
        if result.message:
            one["handleMsg"] = plain(head_and_tail(result.message), MESSAGE_CHARS_MAX)
        listed.append(one)
    return written(listed if dialect is Dialect.UP_TO_3_4 else {"callbackList": listed})


def decode_results(body: bytes) -> list[RunResult]:
    """The results of a callback in either dialect. Raises Malformed; a message that is too long
    is cut, for the result must not be lost by it.
    """
    parsed_body = parsed(body)
    listed = (
        parsed_body
        if isinstance(parsed_body, list)
        else Fields.of(parsed_body).value("callbackList")
    )
    if not isinstance(listed, list):
        raise Malformed("callbackList", "not a list")
    if len(listed) > RESULTS_MAX:
        raise Malformed("callbackList", f"{len(listed):,} results; {RESULTS_MAX:,} are the most")
    return [_result(Fields.of(one, "callbackList")) for one in listed]


@dataclass(frozen=True, slots=True)
class Registration:
    """An executor says, each 30 s, where it is; or, at its end, that it is gone."""

    app: str
    address: str
    """As it was reported; `addresses` says whether it may be asked."""
    group: str = "EXECUTOR"

    def encode(self) -> bytes:
        """As an executor sends it."""
        return written(
            {
                "registryGroup": self.group,
                "registryKey": self.app,
                "registryValue": self.address,
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> Registration:
        """Raises Malformed."""
        fields = Fields.of(parsed(body))
        group = fields.text("registryGroup", chars_max=NAME_CHARS_MAX)
        if group not in {"EXECUTOR", "ADMIN"}:
            raise Malformed("registryGroup", "not EXECUTOR or ADMIN")
        app = fields.text("registryKey", chars_max=APP_CHARS_MAX)
        if not is_app_name(app):
            raise Malformed("registryKey", f"not {APP_NAME_RULE}")
        return cls(app, fields.text("registryValue", chars_max=ADDRESS_CHARS_MAX), group)


APP_NAME_RULE: Final = (
    f"a printable name of 1 to {APP_CHARS_MAX} characters, without blank, comma, < and >"
)


def is_app_name(text: str) -> bool:
    """May an executor have this name?"""
    return 0 < len(text) <= APP_CHARS_MAX and text.isprintable() and not set(text) & set(" ,<>")


def encode_job(job_id: int) -> bytes:
    """The body of idleBeat."""
    return written({"jobId": job_id})


def decode_job(body: bytes) -> int:
    """The job that idleBeat is about. Raises Malformed."""
    return _job_id(Fields.of(parsed(body)))


def encode_kill(job_id: int, log_id: int | None = None) -> bytes:
    """The body of kill. XXL-Job's executors read past the run, and stop all of the job."""
    return written({"jobId": job_id} | ({} if log_id is None else {"logId": log_id}))


def decode_kill(body: bytes) -> tuple[int, int | None]:
    """The job that is to end, and the one run of it; None: all of them. Raises Malformed."""
    fields = Fields.of(parsed(body))
    return _job_id(fields), None if fields.value("logId") is None else _log_id(fields)


def _result(fields: Fields) -> RunResult:
    message = fields.text("handleMsg", chars_max=LOG_PAGE_CHARS_MAX, default="")
    return RunResult(
        _log_id(fields),
        _log_time_ms(fields),
        fields.integer("handleCode", low=1),
        head_and_tail(message),
    )


def _job_id(fields: Fields) -> int:
    return fields.integer("jobId")


def _log_id(fields: Fields) -> int:
    return fields.integer("logId", high=LONG_MAX)


def _log_time_ms(fields: Fields) -> int:
    return fields.integer("logDateTime", "logDateTim", high=TIME_MS_MAX)
