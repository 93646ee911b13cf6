"""Pure functions that convert an XXL-Job database to our types and explain each omission.

Versions 2.2 to 3.5 differ in a few names of columns: both are read. Numbers of groups and jobs are
theirs until they are stored: `take_over` gives ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from engine.foundation.errors import ConfigError, MustBe
from pipelines.scheduler.importing.mysql_dump import Row
from pipelines.scheduler.job_settings import BEAN, XXL_NAMES, JobSettings, setting_of
from pipelines.scheduler.run_life import OK, RunState
from pipelines.scheduler.schedules import ScheduleKind, schedule_of
from pipelines.scheduler.scripts import runnable
from pipelines.scheduler.trigger_cycles import path_in_words, without_circles
from pipelines.scheduler.wire.addresses import Address

TABLES: Final = ("xxl_job_group", "xxl_job_info", "xxl_job_logglue", "xxl_job_user")
HISTORY: Final = "xxl_job_log"
GLUE_KEPT: Final = 30
TOKEN_CHARS_MIN: Final = 16


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that is not taken over, or reads differently here."""

    subject: str
    """`group 1`, `job 7`, `user ann`; all of them under their numbers there."""
    text: str


@dataclass(frozen=True, slots=True)
class TakenGroup:
    """A group of executors."""

    their_id: int
    app_name: str
    title: str
    manual_addresses: tuple[str, ...] | None
    token: str | None


@dataclass(frozen=True, slots=True)
class TakenGlue:
    """A source that a job had."""

    glue_type: str
    source: str
    remark: str
    changed_ms: int


@dataclass(frozen=True, slots=True)
class TakenJob:
    """A job. `settings` have no children yet: those are by their numbers there."""

    their_id: int
    their_group: int
    settings: JobSettings
    children: tuple[int, ...]
    was_running: bool
    glue: tuple[TakenGlue, ...]
    """The oldest first."""


@dataclass(frozen=True, slots=True)
class TakenUser:
    """A user, who has no password here."""

    name: str
    is_admin: bool
    their_groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TakenRun:
    """A run that has been."""

    their_id: int
    their_job: int
    state: RunState
    planned_ms: int
    ended_ms: int
    address: str | None
    parameters: str | None
    shard_index: int
    shard_total: int
    trigger_code: int
    trigger_message: str
    result_code: int | None
    result_message: str | None


@dataclass(frozen=True, slots=True)
class Taking:
    """All that is taken over, and what is to be said of the rest."""

    groups: tuple[TakenGroup, ...]
    jobs: tuple[TakenJob, ...]
    users: tuple[TakenUser, ...]
    remarks: tuple[Remark, ...]


def taking(tables: Mapping[str, Sequence[Row]], zone: ZoneInfo) -> Taking:
    """What becomes of the rows. `zone`: in which their admin ran: of its cron rules and times."""
    remarks: list[Remark] = []
    groups = [_group(row, remarks) for row in tables.get("xxl_job_group", ())]
    glue = _glue(tables.get("xxl_job_logglue", ()), zone)
    jobs = [
        job
        for row in tables.get("xxl_job_info", ())
        if (job := _job(row, (zone, glue), remarks)) is not None
    ]
    known = {job.their_id for job in jobs}
    group_ids = {group.their_id for group in groups}
    kept = []
    for job in jobs:
        if job.their_group not in group_ids:
            remarks.append(Remark(f"job {job.their_id}", f"left out: no group {job.their_group}"))
            continue
        gone = [child for child in job.children if child not in known]
        if gone:
            remarks.append(Remark(f"job {job.their_id}", f"without children that are not: {gone}"))
        kept.append(replace(job, children=tuple(c for c in job.children if c in known)))
    kept = _without_circles(kept, remarks)
    users = [
        user
        for row in tables.get("xxl_job_user", ())
        if (user := _user(row, group_ids, remarks)) is not None
    ]
    if users:
        remarks.append(
            Remark(
                "users",
                "passwords cannot be taken over, only their hashes are there: give each a new one "
                "with `tidemark scheduler users password NAME`",
            )
        )
    return Taking(tuple(groups), tuple(kept), tuple(users), tuple(remarks))


def _without_circles(jobs: Sequence[TakenJob], remarks: list[Remark]) -> list[TakenJob]:
    """The jobs without children that would begin them again."""
    children, circles = without_circles({job.their_id: job.children for job in jobs})
    for circle in circles:
        text = f"without child {circle[1]}, which begins it again: {path_in_words(circle)}"
        remarks.append(Remark(f"job {circle[0]}", text))
    return [replace(job, children=children[job.their_id]) for job in jobs]


def _group(row: Row, remarks: list[Remark]) -> TakenGroup:
    number = _number(row, "id")
    addresses: list[str] | None = None
    if _number(row, "address_type") == 1:
        addresses = []
        for text in filter(None, (row.get("address_list") or "").split(",")):
            try:
                addresses.append(Address.parse(text.strip()).text)
            except ConfigError as error:
                remarks.append(Remark(f"group {number}", f"without an address: {error}"))
        if not addresses:
            remarks.append(Remark(f"group {number}", "no address by hand: executors register"))
            addresses = None
    token = row.get("access_token") or None
    if token is not None and (len(token) < TOKEN_CHARS_MIN or not token.isascii()):
        fault = f"its access token is shorter than {TOKEN_CHARS_MIN} characters: the common one"
        remarks.append(Remark(f"group {number}", fault))
        token = None
    app_name = row.get("app_name") or ""
    title = row.get("title") or row.get("name") or app_name
    return TakenGroup(
        number, app_name, title, None if addresses is None else tuple(addresses), token
    )


def _job(
    row: Row, around: tuple[ZoneInfo, Mapping[int, list[TakenGlue]]], remarks: list[Remark]
) -> TakenJob | None:
    zone, glue = around
    number = _number(row, "id")

    def remark(text: str) -> None:
        remarks.append(Remark(f"job {number}", text))

    try:
        values = _values(row, number)
        children = values.pop("children", ())
        settings = _settings(values | _schedule(row, zone, remark), remark)
    except ConfigError as error:
        remark(f"left out: {error}")
        return None
    if row.get("alarm_email"):
        remark(f"its alarms went to {row['alarm_email']}: write a rule of alerting for it")
    if settings.schedule_kind == ScheduleKind.CRON and _has_summer_time(zone):
        remark(
            f"where the clock of {zone.key} is set: a time that it leaps over fires when the leap "
            "ends, and one that comes twice when it comes first; there never, and the second time"
        )
    return TakenJob(
        number,
        _number(row, "job_group"),
        settings,
        children,
        row.get("trigger_status") == "1",
        tuple(glue.get(number, ())[-GLUE_KEPT:]) if settings.glue_type != BEAN else (),
    )


def _values(row: Row, number: int) -> dict[str, Any]:
    """The settings in their columns, by our names. Without schedule, and without empty ones."""
    same = ("author", "glue_type", "glue_source")
    columns = dict(XXL_NAMES) | {name: name for name in same}
    values: dict[str, Any] = {}
    for column, name in columns.items():
        text = row.get(column)
        if text and not name.startswith("schedule"):
            values[name] = setting_of(name, text)
    values.setdefault("title", f"job {number}")
    if values.get("glue_type", BEAN) == BEAN:
        values.pop("glue_source", None)
    return values


def _schedule(row: Row, zone: ZoneInfo, remark: Callable[[str], None]) -> dict[str, str]:
    """Its schedule; none, with a remark, when the rule cannot be read here."""
    text = row.get("schedule_conf") or row.get("job_cron") or ""
    kind = row.get("schedule_type") or ("CRON" if row.get("job_cron") else "NONE")
    chosen = {"schedule_kind": kind, "schedule_text": "" if kind == "NONE" else text}
    try:
        schedule_of(kind, chosen["schedule_text"], zone.key)
    except ConfigError as error:
        remark(f"without a schedule: {error}")
        chosen = {"schedule_kind": "NONE", "schedule_text": ""}
    return chosen | {"zone": zone.key}


def _settings(values: dict[str, Any], remark: Callable[[str], None]) -> JobSettings:
    """The settings, each that cannot be here at its default; raises ConfigError for a job that
    cannot be at all.
    """
    defaults = {field.name: field.default for field in fields(JobSettings)}
    for _ in range(len(defaults)):
        try:
            return JobSettings(**values)
        except ConfigError as error:
            if error.key not in values or error.key in {"title", "handler", "glue_source"}:
                raise
            remark(f"{error.key} is {defaults[error.key]!r} here: {error}")
            del values[error.key]
    raise MustBe("settings", str(values)[:64], "settings of a job")


def _glue(rows: Sequence[Row], zone: ZoneInfo) -> dict[int, list[TakenGlue]]:
    found: dict[int, list[TakenGlue]] = {}
    for row in sorted(rows, key=lambda row: _number(row, "id")):
        moment_ms = _moment_ms(row.get("update_time") or row.get("add_time"), zone)
        glue_type = row.get("glue_type") or BEAN
        version = TakenGlue(
            glue_type,
            runnable(glue_type, row.get("glue_source") or ""),
            (row.get("glue_remark") or "")[:128],
            moment_ms or 0,
        )
        found.setdefault(_number(row, "job_id"), []).append(version)
    return found


def _user(row: Row, group_ids: set[int], remarks: list[Remark]) -> TakenUser | None:
    name = row.get("username") or ""
    if not name or len(name) > 64 or not name.isascii() or not name.isprintable() or " " in name:
        text = "left out: a name here has 1 to 64 letters of ASCII, without spaces"
        remarks.append(Remark(f"user {name!r}", text))
        return None
    listed = [int(one) for one in (row.get("permission") or "").split(",") if one.strip().isdigit()]
    there = tuple(one for one in listed if one in group_ids)
    return TakenUser(name, row.get("role") == "1", there)


def taken_run(row: Row, zone: ZoneInfo) -> TakenRun | None:
    """A run of their history; None for one without a time.

    One that had no result yet counts as lost: its result goes to their centre, not to this one.
    """
    planned_ms = _moment_ms(row.get("trigger_time"), zone)
    if planned_ms is None:
        return None
    trigger_code, result_code = _number(row, "trigger_code"), _number(row, "handle_code")
    if trigger_code != OK:
        state = RunState.REFUSED
    elif result_code == 0:
        state = RunState.LOST
    else:
        state = RunState.DONE if result_code == OK else RunState.FAILED
    index, _, total = (row.get("executor_sharding_param") or "").partition("/")
    is_shard = index.isdigit() and total.isdigit()
    return TakenRun(
        _number(row, "id"),
        _number(row, "job_id"),
        state,
        planned_ms,
        _moment_ms(row.get("handle_time"), zone) or planned_ms,
        row.get("executor_address"),
        row.get("executor_param"),
        int(index) if is_shard else 0,
        int(total) if is_shard else 1,
        trigger_code,
        row.get("trigger_msg") or "",
        result_code or None,
        row.get("handle_msg"),
    )


def _number(row: Row, name: str) -> int:
    text = row.get(name) or "0"
    try:
        return int(text)
    except ValueError as error:
        raise MustBe(name, text[:32], "a whole number") from error


def _moment_ms(text: str | None, zone: ZoneInfo) -> int | None:
    """ms since 1970 of a time as MySQL writes it, on the clock of that zone."""
    if not text or text.startswith("0000"):
        return None
    try:
        moment = datetime.fromisoformat(text).replace(tzinfo=zone)
    except ValueError:
        return None
    return int((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def _has_summer_time(zone: ZoneInfo) -> bool:
    """Is the clock there set forth and back these years?"""
    days = (datetime(2025, 1, 1, tzinfo=zone) + timedelta(days=30 * number) for number in range(12))
    return len({day.utcoffset() for day in days}) > 1
