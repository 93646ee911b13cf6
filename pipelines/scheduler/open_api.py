"""XXL-Job 3.5's open API, through which a program manages the jobs of its own group.

Place in the walk: beside the three calls by which executors speak to a centre, below the same paths
and behind the same two headers; each request goes through the service, as a person's does.

Invariant: a token of a group's own opens the jobs of that group, and nothing of other groups' jobs
(as children or steps neither), groups, tokens or people. The audit names the asker `app NAME`,
which no person is called. Absent on purpose: the common token; previews; the addresses of
triggerJob: where a run goes is the job's route to say.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from pipelines.database.database import Database
from pipelines.scheduler.job_settings import (
    OURS,
    PARAMETERS_CHARS_MAX,
    XXL_NAMES,
    JobSettings,
    setting_of,
)
from pipelines.scheduler.roles import Actor
from pipelines.scheduler.service import JobService
from pipelines.scheduler.store import groups
from pipelines.scheduler.store.groups import Group
from pipelines.scheduler.wire.fields import LONG_MAX, Fields, Malformed, parsed
from pipelines.scheduler.wire.messages import Answer, refused
from pipelines.scheduler.wire.server import Call, WireRequest

OWN_TOKEN: Final = "the open API takes a token of a group's own: `tidemark scheduler groups token`"  # noqa: S105 - none
ELSEWHERE: Final = "addressList: a run goes where the route of its job says"
RUN_KEY_CHARS_MAX: Final = 48

OffLoop: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]
Action: TypeAlias = Callable[[JobService, Group, Fields, Mapping[str, Any]], object]


def open_calls(database: Database, clock: Callable[[], int], off_loop: OffLoop) -> dict[str, Call]:
    """What a program may ask, by the last part of its path."""

    def call_of(action: Action) -> Call:
        async def call(request: WireRequest) -> Answer:
            answer: Answer = await off_loop(
                partial(_done, database, clock, action, request=request)
            )
            return answer

        return call

    return {name: call_of(action) for name, action in ACTIONS.items()}


def _done(
    database: Database, clock: Callable[[], int], action: Action, *, request: WireRequest
) -> Answer:
    """Do it for the group whose token was shown."""
    app = request.speaker.app
    if app is None:
        return refused(OWN_TOKEN)
    group = next((one for one in groups.groups(database) if one.app_name == app), None)
    if group is None:
        return refused(OWN_TOKEN)
    fields = Fields.of(values := parsed(request.body))
    assert isinstance(values, dict), "Fields.of has seen to it"
    theirs = fields.integer("jobGroup", "job_group", default=group.group_id, high=LONG_MAX)
    if theirs != group.group_id:
        return refused(f"jobGroup: the token is that of group {group.group_id}")
    actor = Actor(f"app {app}", group_ids=frozenset({group.group_id}))
    return Answer(content=action(JobService(database, actor, clock), group, fields, values))


def _add(service: JobService, group: Group, fields: Fields, values: Mapping[str, Any]) -> object:
    del fields
    default = {"title": "", "author": service.change.author}
    settings = JobSettings(**default | _settings(values))
    return str(service.add_job(group.app_name, settings))


def _update(service: JobService, group: Group, fields: Fields, values: Mapping[str, Any]) -> object:
    del group
    job_id = _job_id(fields)
    before = service.job(job_id).settings
    settings = replace(before, **_settings(values))
    if settings != before:
        service.edit_job(job_id, settings)
    return None


def _remove(service: JobService, group: Group, fields: Fields, values: Mapping[str, Any]) -> object:
    del group, values
    service.remove_job(_job_id(fields))
    return None


def _start(service: JobService, group: Group, fields: Fields, values: Mapping[str, Any]) -> object:
    del group, values
    service.start_job(_job_id(fields))
    return None


def _stop(service: JobService, group: Group, fields: Fields, values: Mapping[str, Any]) -> object:
    del group, values
    service.pause_job(_job_id(fields))
    return None


def _trigger(
    service: JobService, group: Group, fields: Fields, values: Mapping[str, Any]
) -> object:
    """The number of the run. `runKey` is ours: the same key is the same run, asked as often as may
    be."""
    del group
    if values.get("addressList"):
        raise Malformed("addressList", ELSEWHERE)
    has_own = values.get("executorParam") is not None
    parameters = fields.text("executorParam", chars_max=PARAMETERS_CHARS_MAX, default="")
    run_key = fields.text("runKey", chars_max=RUN_KEY_CHARS_MAX, default=secrets.token_hex(8))
    return str(service.run_job(_job_id(fields), run_key, parameters if has_own else None))


ACTIONS: Final[Mapping[str, Action]] = {
    "addJob": _add,
    "updateJob": _update,
    "removeJob": _remove,
    "startJob": _start,
    "stopJob": _stop,
    "triggerJob": _trigger,
}


def _job_id(fields: Fields) -> int:
    return fields.integer("id", low=1, high=LONG_MAX)


def _settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by our names, from XXL-Job's or ours. What is absent or null stays as it is; fields
    that nobody here knows are left alone, as everywhere on the wire.
    """
    found: dict[str, Any] = {}
    for given, value in values.items():
        name = XXL_NAMES.get(given, given)
        if name not in OURS or value is None:
            continue
        if type(value) not in {str, int}:
            raise Malformed(given, "not a text and no whole number")
        read = setting_of(name, str(value))
        if found.get(name, read) != read:
            raise Malformed(given, f"another than under another name of {name}")
        found[name] = read
    return found
