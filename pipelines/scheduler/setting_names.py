"""Reads job settings given as text, under our names or under XXL-Job's.

XXL-Job writes them in two ways, in its tables (`executor_block_strategy`) and in its API
(`executorBlockStrategy`); their values are the same as ours. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from engine.foundation.errors import ConfigError
from pipelines.scheduler.job_settings import JobSettings

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
            raise ConfigError("setting", given, NOT_OURS[given])
        if not sign or name not in OURS:
            raise ConfigError("setting", text, f"NAME=VALUE; names: {', '.join(OURS)}")
        if name in values:
            raise ConfigError("setting", given, "each setting once")
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
        raise ConfigError(name, value, "whole numbers") from error
    return value
