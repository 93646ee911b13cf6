"""Parses and validates job settings, given under our names or XXL-Job's.

XXL-Job writes them in two ways, in its tables (`executor_block_strategy`) and in its API
(`executorBlockStrategy`); their values are the same as ours. Pure.

Invariant: a value of JobSettings can be planned, routed and sent, unless it was made `unchecked`,
to be shown and mended; its source is one that its interpreter can run (`scripts`). Absent on
purpose: where a job stands (its next time, its runs), which the store knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from engine.foundation.errors import MustBe
from pipelines.scheduler.refusals import given_twice, no_setting
from pipelines.scheduler.routing import RouteStrategy
from pipelines.scheduler.schedules import MisfirePolicy, Schedule, schedule_of
from pipelines.scheduler.scripts import runnable
from pipelines.scheduler.workflows import WORKFLOW, workflow_of

BLOCKING: Final = ("SERIAL_EXECUTION", "DISCARD_LATER", "COVER_EARLY")
"""What an executor does with a run while it has another of the job; XXL-Job's words."""

BEAN: Final = "BEAN"
GLUE_TYPES: Final = (
    BEAN,
    "GLUE_GROOVY",
    "GLUE_SHELL",
    "GLUE_PYTHON",
    "GLUE_PYTHON2",
    "GLUE_NODEJS",
    "GLUE_POWERSHELL",
    "GLUE_PHP",
)
"""What an executor runs: a handler of its own, or a source that is sent to it."""

NAME_CHARS_MAX: Final = 255
PARAMETERS_CHARS_MAX: Final = 65_535
SOURCE_CHARS_MAX: Final = 4 * 1024 * 1024
TIMEOUT_S_MAX: Final = 30 * 86_400
RETRIES_MAX: Final = 100
CHILDREN_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class JobSettings:
    """A job as it is asked for; raises ConfigError that names the setting which cannot be."""

    title: str
    """What people call it."""
    author: str = ""
    schedule_kind: str = "NONE"
    schedule_text: str = ""
    """A cron rule, seconds, or a moment; by the kind."""
    zone: str = "UTC"
    """The IANA zone in which cron rules and moments are read."""
    misfire: str = MisfirePolicy.DO_NOTHING.value
    route: str = RouteStrategy.ROUND.value
    handler: str = ""
    parameters: str = ""
    blocking: str = BLOCKING[0]
    timeout_s: int = 0
    """How long a run may take, by its executor's clock; 0: as long as it takes."""
    retries: int = 0
    """How often a run that was refused, failed or lost is tried again."""
    children: tuple[int, ...] = ()
    """Jobs that run once this one has succeeded."""
    glue_type: str = BEAN
    glue_source: str = ""
    """What is sent to the executor; of a workflow, its steps."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "glue_source", runnable(self.glue_type, self.glue_source))
        _one_of("misfire", self.misfire, tuple(MisfirePolicy))
        _one_of("route", self.route, tuple(RouteStrategy))
        _one_of("blocking", self.blocking, BLOCKING)
        _one_of("glue_type", self.glue_type, (*GLUE_TYPES, WORKFLOW))
        _within("timeout_s", self.timeout_s, TIMEOUT_S_MAX)
        _within("retries", self.retries, RETRIES_MAX)
        _within("children", len(self.children), CHILDREN_MAX)
        _short("author", self.author, NAME_CHARS_MAX)
        _short("title", self.title, NAME_CHARS_MAX)
        _short("handler", self.handler, NAME_CHARS_MAX)
        _short("parameters", self.parameters, PARAMETERS_CHARS_MAX)
        _short("glue_source", self.glue_source, SOURCE_CHARS_MAX)
        if not self.title.strip():
            raise MustBe("title", self.title, "a name that people know it by")
        if self.glue_type == BEAN and not self.handler:
            raise MustBe("handler", "", "the name of a handler: the job runs no source")
        if self.is_workflow:
            workflow_of(self.glue_source)
            _one_of("handler", self.handler, ("",))
            _within("timeout_s", self.timeout_s, 0)
        if any(child < 1 for child in self.children):
            raise MustBe("children", self.children, "numbers of jobs")
        _ = self.schedule

    @classmethod
    def unchecked(cls, **values: Any) -> JobSettings:
        """Settings that cannot be, as somebody has stored them. `replace` checks what it makes."""
        made = object.__new__(cls)
        for field in fields(cls):
            object.__setattr__(made, field.name, values.get(field.name, field.default))
        return made

    @property
    def is_workflow(self) -> bool:
        """Are its runs the steps of a graph, and not an executor's?"""
        return self.glue_type == WORKFLOW

    @property
    def schedule(self) -> Schedule:
        """Its times."""
        return schedule_of(self.schedule_kind, self.schedule_text, self.zone)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise MustBe(name, value, f"one of {', '.join(allowed)}")


def _within(name: str, value: int, high: int) -> None:
    if not 0 <= value <= high:
        raise MustBe(name, value, f"0 to {high:,}")


def _short(name: str, value: str, chars_max: int) -> None:
    if len(value) > chars_max:
        raise MustBe(name, f"{value[:32]}…", f"at most {chars_max:,} characters")


OURS: Final = tuple(field.name for field in fields(JobSettings))

XXL_NAMES: Final[Mapping[str, str]] = {
    "job_desc": "title",
    "jobDesc": "title",
    "name": "title",  # of 3.5
    "schedule_type": "schedule_kind",
    "scheduleType": "schedule_kind",
    "schedule_conf": "schedule_text",
    "scheduleConf": "schedule_text",
    "misfire_strategy": "misfire",
    "misfireStrategy": "misfire",
    "executor_route_strategy": "route",
    "executorRouteStrategy": "route",
    "executor_handler": "handler",
    "executorHandler": "handler",
    "executor_param": "parameters",
    "executorParam": "parameters",
    "executor_block_strategy": "blocking",
    "executorBlockStrategy": "blocking",
    "executor_timeout": "timeout_s",
    "executorTimeout": "timeout_s",
    "executor_fail_retry_count": "retries",
    "executorFailRetryCount": "retries",
    "child_jobid": "children",
    "childJobId": "children",
    "glueType": "glue_type",
    "glueSource": "glue_source",
}
"""What is named otherwise there. `author`, `glue_type` and `glue_source` are named as here."""

NOT_OURS: Final[Mapping[str, str]] = {
    "alarm_email": "alarms go through the rules and channels of alerting",
    "alarmEmail": "alarms go through the rules and channels of alerting",
    "trigger_status": "`jobs start` and `jobs pause` say whether it runs",
    "triggerStatus": "`jobs start` and `jobs pause` say whether it runs",
    "job_group": "--group names the application",
    "jobGroup": "--group names the application",
    "jobCron": "schedule_kind=CRON and schedule_text=RULE",
}
"""What XXL-Job has and a setting of a job here is not."""

assert set(XXL_NAMES.values()) | {"author", "zone"} == set(OURS), "each has its name there"


def settings_from(texts: Iterable[str]) -> dict[str, Any]:
    """Settings by our names from NAME=VALUE, each of the kind that it has; raises ConfigError."""
    values: dict[str, Any] = {}
    for text in texts:
        given, sign, value = text.partition("=")
        name = XXL_NAMES.get(given, given)
        if given in NOT_OURS:
            raise no_setting(given, NOT_OURS[given])
        if not sign:
            raise no_setting(text, "write NAME=VALUE, as retries=2")
        if name not in OURS:
            raise no_setting(given, f"the settings are {', '.join(OURS)}")
        if name in values:
            raise given_twice(name)
        values[name] = setting_of(name, value)
    return values


def setting_of(name: str, value: str) -> Any:
    """The value of one setting from its text; raises ConfigError."""
    try:
        if name in {"timeout_s", "retries"}:
            return int(value)
        if name == "children":
            return tuple(int(one) for one in value.split(",") if one.strip())
    except ValueError as error:
        raise MustBe(name, value, "whole numbers") from error
    return value
