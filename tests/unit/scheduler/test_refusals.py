"""What people are refused is said in sentences that begin with what they are about."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from engine.foundation.errors import ConfigError, RuleBroken
from pipelines import alerting, scheduler
from pipelines.scheduler import refusals
from pipelines.scheduler.job_settings import JobSettings

TAKE_OUT = "take it out of the steps first"


@pytest.mark.parametrize(
    ("refusal", "key", "sentence"),
    [
        (refusals.no_such("job", 99), "job", "there is no job 99"),
        (refusals.no_such("user", "ann"), "user", "there is no user 'ann'"),
        (
            refusals.no_such("job", 99, key="children", where="children"),
            "children",
            "there is no job 99 (children)",
        ),
        (refusals.exists_already("user", "root"), "user", "user 'root' exists already"),
        (
            refusals.exists_already("group", "g" * 70, key="app_name"),
            "app_name",
            f"group '{'g' * 64}…' exists already",
        ),
        (refusals.nothing_changed(), "settings", "nothing changed: every value is as it was"),
        (refusals.nothing_changed("rights"), "rights", "nothing changed: every value is as it was"),
        (
            refusals.is_a_step(1, [5], "be removed"),
            "job",
            f"job 1 is a step of workflow 5, so it cannot be removed; {TAKE_OUT}",
        ),
        (
            refusals.is_a_step(1, [2, 3, 4, 5, 6, 7], "be"),
            "job",
            f"job 1 is a step of workflows 2, 3, 4, 5, 6 and 1 more, so it cannot be; {TAKE_OUT}",
        ),
        (
            refusals.group_with_jobs("media", 1),
            "group",
            "group 'media' has 1 job: remove or move it first",
        ),
        (
            refusals.group_with_jobs("media", 1200),
            "group",
            "group 'media' has 1,200 jobs: remove or move them first",
        ),
    ],
)
def test_a_refusal_is_a_sentence_with_its_subject_first(
    refusal: RuleBroken, key: str, sentence: str
) -> None:
    assert str(refusal) == refusal.allowed == sentence
    assert refusal.key == key
    assert isinstance(refusal, ConfigError), "whoever catches wrong settings catches it"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"retries": 101}, "retries is 101, and must be 0 to 100"),
        ({"title": ""}, "title is '', and must be a name that people know it by"),
        ({"blocking": "X"}, "blocking is 'X', and must be one of SERIAL_EXECUTION, "),
        ({"schedule_kind": "X"}, "schedule_kind is 'X', and must be one of NONE, CRON, "),
        ({"schedule_text": "x"}, "cron is 'x', and must be six fields or seven: "),
    ],
)
def test_a_refusal_says_first_what_is_wrong(given: dict[str, Any], said: str) -> None:
    """Then the rule, in one sentence."""
    right = {"title": "a", "handler": "h", "schedule_kind": "CRON", "schedule_text": "0 0 9 * * ?"}
    with pytest.raises(ConfigError) as refusal:
        _ = JobSettings(**(right | given)).schedule
    assert str(refusal.value).startswith(said)


def test_no_refusal_of_jobs_or_alerts_has_the_form_that_reads_backwards() -> None:
    """Not `setting NAME=VALUE is not allowed: WHAT IS`, which names no subject."""
    for room in (scheduler, alerting):
        for file in Path(room.__path__[0]).rglob("*.py"):
            assert not re.search(r"(?<!class )\bConfigError\(", file.read_text()), file
