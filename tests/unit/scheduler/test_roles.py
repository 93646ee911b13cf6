"""Rights, passwords and names of settings: what is allowed, kept and read."""

from __future__ import annotations

import pytest

from engine.foundation.errors import ConfigError
from pipelines.scheduler.job_settings import NOT_OURS, XXL_NAMES, JobSettings, settings_from
from pipelines.scheduler.passwords import NO_PASSWORD, is_password, password_hash
from pipelines.scheduler.roles import OF_A_GROUP, Action, Actor, NotPermitted, demand, may

ADMIN = Actor("root", is_admin=True)
ANN = Actor("ann", group_ids=frozenset({1, 2}))


@pytest.mark.parametrize("action", list(Action))
def test_what_is_not_allowed_is_refused(action: Action) -> None:
    assert may(ADMIN, action, 3)
    assert may(ADMIN, action)
    assert may(ANN, action, 2) is (action in OF_A_GROUP)
    assert not may(ANN, action, 3), "another's group"
    assert not may(ANN, action), "no group in particular"
    assert not may(Actor("bob"), action, 1)
    assert not may(None, action, 1)
    with pytest.raises(NotPermitted, match=f"ann may not {action.value}"):
        demand(ANN, action, 3)


def test_a_password_is_known_by_its_hash_alone() -> None:
    kept = password_hash("correct horse battery")
    assert "horse" not in kept
    assert len(kept) <= 255
    assert kept != password_hash("correct horse battery"), "each has a salt of its own"
    assert is_password("correct horse battery", kept)
    assert not is_password("correct horse batterY", kept)
    assert not is_password("", NO_PASSWORD), "nobody signs in without one"
    assert not is_password("NO", "e10adc3949ba59abbe56e057f20f883e"), "nor by another's hash"


@pytest.mark.parametrize("password", ["short", "a" * 11, "a" * 1025])
def test_a_password_that_is_too_short_or_too_long_is_refused_and_not_shown(password: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        password_hash(password)
    assert password not in str(refusal.value)


def test_settings_are_read_under_both_names() -> None:
    ours = settings_from(["title=a", "retries=2", "children=1,2", "handler=h", "parameters=x=y"])
    theirs = settings_from(
        ["jobDesc=a", "executor_fail_retry_count=2", "childJobId=1,2", "executorHandler=h",
         "executorParam=x=y"]
    )  # fmt: skip
    assert ours == theirs
    assert JobSettings(**ours).children == (1, 2)
    camel = {name for name in XXL_NAMES if "_" not in name and name != "name"}
    snake = {name for name in XXL_NAMES if "_" in name}
    assert {XXL_NAMES[name] for name in camel} - {"glue_type", "glue_source"} == {
        XXL_NAMES[name] for name in snake
    }


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (["nothing"], "'nothing' is no setting of a job: write NAME=VALUE, as retries=2"),
        (["cron=0 0"], "'cron' is no setting of a job: the settings are title, author, "),
        (["title=a", "job_desc=b"], "setting title is given twice: give it once"),
        (["executorTimeout=soon"], "whole numbers"),
        *(([f"{name}=x"], why) for name, why in NOT_OURS.items()),
    ],
)
def test_what_is_no_setting_is_refused_with_a_reason(texts: list[str], why: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        settings_from(texts)
    assert why in str(refusal.value)
