"""Groups, users, sources and their rights, as somebody asks the service for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from engine.foundation.errors import ConfigError
from pipelines.database.database import Database
from pipelines.scheduler.importing.xxl_job import Taking
from pipelines.scheduler.passwords import NO_PASSWORD, is_password
from pipelines.scheduler.roles import Action, Actor, NotPermitted
from pipelines.scheduler.service import JobService
from pipelines.scheduler.store import groups, people, registry, sessions
from tests.integration.scheduler.stores import NOW_MS, by, settings

PASSWORD = "correct horse battery"
NOTHING = Taking((), (), (), ())
TOKEN = "sixteen-or-more-characters"
ADMIN = Actor("root", is_admin=True)


def service_of(database: Database, actor: Actor | None = ADMIN) -> JobService:
    return JobService(database, actor, lambda: NOW_MS)


def shop(database: Database) -> tuple[JobService, JobService, int, int]:
    """An administrator and Ann, who has the jobs of one group; a job of hers, one of another."""
    root = service_of(database)
    hers = root.add_job("hers", settings(title="hers"))
    other = root.add_job("other", settings(title="other"))
    root.add_user("ann", apps=["hers"])
    ann = service_of(database, people.actor_of(database, "ann"))
    return root, ann, hers, other


ASKED: dict[str, Callable[[JobService, int], Any]] = {
    "demand_job": lambda context, job: context.job(job),
    "demand_app": lambda context, job: context.demand_app(Action.CHANGE_JOBS, "other"),
    "demand_named": lambda context, job: context.demand_named(settings(children=(job,)), ()),
    "job": lambda context, job: context.job(job),
    "runs_of": lambda context, job: context.runs_of(job),
    "add_job": lambda context, job: context.add_job("other", settings()),
    "edit_job": lambda context, job: context.edit_job(job, settings()),
    "copy_job": lambda context, job: context.copy_job(job, settings()),
    "start_job": lambda context, job: context.start_job(job),
    "pause_job": lambda context, job: context.pause_job(job),
    "remove_job": lambda context, job: context.remove_job(job),
    "run_job": lambda context, job: context.run_job(job, "k"),
    "kill_run": lambda context, job: context.kill_run(1, token=None),
    "log_of_run": lambda context, job: context.log_of_run(1, from_line=1, token=None),
    "days": lambda context, job: context.days(1),
    "glue_of": lambda context, job: context.glue_of(job),
    "roll_back": lambda context, job: context.roll_back(job, 1),
    "steps_of": lambda context, job: context.steps_of(1),
    "stop_run": lambda context, job: context.stop_run(1),
    "add_group": lambda context, job: context.add_group("new"),
    "edit_group": lambda context, job: context.edit_group("other", title="x", addresses=None),
    "copy_group": lambda context, job: context.copy_group("other", "new"),
    "set_token": lambda context, job: context.set_token("other", TOKEN),
    "remove_group": lambda context, job: context.remove_group("other"),
    "users": lambda context, job: context.users(),
    "add_user": lambda context, job: context.add_user("eve", is_admin=True),
    "keep_administrator": lambda context, job: context.keep_administrator(),
    "edit_user": lambda context, job: context.edit_user("ann", is_admin=True),
    "copy_user": lambda context, job: context.copy_user("root", "eve"),
    "set_password": lambda context, job: context.set_password("root", PASSWORD),
    "remove_user": lambda context, job: context.remove_user("root"),
    "take_over": lambda context, job: context.take_over(NOTHING, "x"),
    "take_history": lambda context, job: context.take_history([], "x"),
    "audit_of": lambda context, job: context.audit_of(),
}
LISTS = {"jobs_after", "groups", "registered"}


def test_nobody_gets_at_what_is_not_his(database: Database) -> None:
    public = {
        name for name, _ in inspect.getmembers(JobService, inspect.isfunction) if name[0] != "_"
    }
    assert public == set(ASKED) | LISTS, "each thing that can be asked for is asked for here"
    _, ann, hers, other = shop(database)
    before = people.users(database), groups.groups(database)
    for who in (ann, service_of(database, None), service_of(database, Actor("bob"))):
        for name, ask in ASKED.items():
            for job_id in (other, 999):
                with pytest.raises(NotPermitted):
                    raise AssertionError(f"{name} answers {ask(who, job_id)}")
        assert (people.users(database), groups.groups(database)) == before
    assert [job.job_id for job in ann.jobs_after()] == [hers]
    assert [group.app_name for group in ann.groups()] == ["hers"]
    assert service_of(database, None).jobs_after() == []
    for app in ("hers", "other"):
        registry.beat(database, app, "http://10.0.0.1:9999/", now_ms=NOW_MS)
    theirs = next(one.group_id for one in groups.groups(database) if one.app_name == "other")
    groups.edit_group(database, theirs, by(), title="x", manual_addresses=["http://10.0.0.2:9999/"])
    later = JobService(
        database, people.actor_of(database, "ann"), lambda: NOW_MS + registry.GONE_MS
    )
    assert [(one.app_name, one.is_gone) for one in ann.registered()] == [("hers", False)]
    assert [(one.app_name, one.is_gone) for one in later.registered()] == [("hers", True)]
    assert service_of(database, None).registered() == []
    assert [(one.app_name, one.seen_ms) for one in service_of(database).registered()] == [
        ("hers", NOW_MS), ("other", NOW_MS), ("other", None)
    ]  # fmt: skip


def test_no_job_begins_others_than_its_author_may(database: Database) -> None:
    root, ann, hers, other = shop(database)
    flow = f"[steps.a]\njob = {other}"
    for wanted in (
        settings(children=(other,)),
        settings(handler="", glue_type="WORKFLOW", glue_source=flow),
    ):
        with pytest.raises(NotPermitted):
            ann.edit_job(hers, wanted)
        with pytest.raises(NotPermitted):
            ann.add_job("hers", wanted)
    with pytest.raises(NotPermitted):
        ann.edit_job(hers, settings(), app_name="other")
    root.edit_job(hers, settings(children=(other,)))
    ann.edit_job(hers, settings(title="renamed", children=(other,)))
    with pytest.raises(NotPermitted):
        ann.copy_job(hers, ann.job(hers).settings)


def test_a_job_is_copied_paused_and_sources_go_back(database: Database) -> None:
    root, ann, hers, _ = shop(database)
    for number in range(3):
        wanted = settings(glue_type="GLUE_SHELL", glue_source=f"echo {number}", handler="")
        ann.edit_job(hers, wanted, remark=f"change {number}")
    oldest = ann.glue_of(hers)[-1]
    ann.roll_back(hers, oldest.glue_id)
    assert ann.job(hers).settings.glue_source == "echo 0"
    back = ann.glue_of(hers)[0]
    assert (back.remark, back.author) == (f"as version {oldest.glue_id}", "ann")
    with pytest.raises(ConfigError, match="there is no version"):
        ann.roll_back(hers, 999)
    ann.start_job(hers)
    copied = ann.job(ann.copy_job(hers, ann.job(hers).settings))
    assert (copied.is_active, copied.settings.glue_source) == (False, "echo 0")
    actions = [(one.author, one.action) for one in root.audit_of(f"job:{hers}")]
    assert actions == [("ann", "start"), ("ann", "edit"), *[("ann", "edit")] * 3, ("root", "add")]


def test_the_first_user_leaves_whoever_made_him_an_administrator(database: Database) -> None:
    root = service_of(database)
    root.add_user("ann")
    assert {user.name: user.is_admin for user in root.users()} == {"ann": False, "root": True}
    for attempt in (
        lambda: root.remove_user("root"),
        lambda: root.edit_user("root", is_admin=False),
    ):
        with pytest.raises(ConfigError, match="is the last administrator"):
            attempt()
    root.edit_user("ann", is_admin=True)
    root.remove_user("root")
    with pytest.raises(ConfigError, match="there is no user"):
        root.edit_user("root", is_admin=True)


def test_of_a_password_only_a_hash_is_kept_and_the_audit_has_none(database: Database) -> None:
    root, ann, _, _ = shop(database)
    assert sessions.kept_password(database, "ann") == NO_PASSWORD
    ann.set_password("ann", PASSWORD)
    kept = sessions.kept_password(database, "ann")
    assert is_password(PASSWORD, kept)
    assert not is_password(PASSWORD + "!", kept)
    assert not is_password(PASSWORD, sessions.kept_password(database, "eve"))
    root.copy_user("ann", "eve")
    assert {user.name: user.has_password for user in root.users()} == {
        "ann": True, "eve": False, "root": False
    }  # fmt: skip
    assert PASSWORD not in str(root.audit_of("user:ann"))


def test_a_group_is_made_changed_copied_and_removed_with_its_token(database: Database) -> None:
    root, ann, hers, _ = shop(database)
    manual = ["http://10.0.0.7:9999/"]
    root.edit_group("hers", title="Hers", addresses=manual)
    before = root.audit_of()
    for same in (
        lambda: root.edit_group("hers", title=None, addresses=manual),
        lambda: root.edit_user("ann", is_admin=False),
    ):
        with pytest.raises(ConfigError, match="nothing changed"):
            same()
    assert root.audit_of() == before
    root.set_token("hers", TOKEN)
    [group] = ann.groups()
    assert (group.title, group.manual_addresses, group.has_token) == ("Hers", tuple(manual), True)
    assert TOKEN not in f"{group} {root.audit_of()}"
    assert groups.tokens_of_apps(database) == {"hers": TOKEN}
    with pytest.raises(ConfigError, match="another group has this access token"):
        root.set_token("other", TOKEN)
    with pytest.raises(ConfigError, match="16 to"):
        root.set_token("other", "short")
    with pytest.raises(ConfigError, match="an address that an executor can have"):
        root.edit_group("hers", title=None, addresses=["http://169.254.169.254/"])
    copied = groups.group_of(database, root.copy_group("hers", "hers-2"))
    assert (copied.manual_addresses, copied.has_token) == (tuple(manual), False)
    with pytest.raises(ConfigError, match="has 1 job: remove or move"):
        root.remove_group("hers")
    root.remove_job(hers)
    root.remove_group("hers")
    assert people.actor_of(database, "ann") == Actor("ann")
    with pytest.raises(ConfigError, match="exists already"):
        groups.add_group(database, "other", by())
