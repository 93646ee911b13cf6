"""What people are refused is said in sentences that begin with what they are about."""

from __future__ import annotations

import pytest

from engine.foundation.errors import ConfigError, RuleBroken
from pipelines.scheduler import refusals

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
