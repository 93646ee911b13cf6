"""Pure functions that parse a job page's URL into its state and build such URLs.

    /jobs                          ?q= group= state= sort= page= do=add
    /jobs/7          its runs      ?run= before= rstate= do=run|start|pause|edit|copy|remove|kill
    /jobs/7/source   its sources   ?glue= do=source|back
    /jobs/executors  groups        ?name= do=group-add|group-edit|group-copy|group-remove
    /jobs/users                    ?name= do=user-add|user-edit|user-copy|user-password|user-remove
    /jobs/operations, /jobs/audit

Invariant: anything may stand in an address; what does not parse counts as not given.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar
from urllib.parse import parse_qs, urlencode

from dashboards.url_state import QUERY_MAX
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.store.job_lists import JobOrder, JobQuery, JobState

Word = TypeVar("Word", bound=StrEnum)
ROOT: Final = "/jobs"
PARTS: Final = {
    "/jobs": "Jobs",
    "/jobs/executors": "Executors",
    "/jobs/users": "Users",
    "/jobs/operations": "Operations",
    "/jobs/audit": "Audit",
}
JOB_PARTS: Final = {"": "Runs", "source": "Source"}
NUMBER_DIGITS: Final = 15
AROUND: Final = ("range", "from", "to", "live", "cluster")
"""What goes with a reader from page to page."""


@dataclass(frozen=True, slots=True)
class JobAddress:
    """A page of jobs."""

    part: str
    """Of PARTS; that of the list for a job's own page."""
    job_id: int | None = None
    job_part: str = ""

    @property
    def path(self) -> str:
        """As it stands in the address."""
        if self.job_id is None:
            return self.part
        return f"{ROOT}/{self.job_id}" + (f"/{self.job_part}" if self.job_part else "")


@dataclass(frozen=True, slots=True)
class JobView:
    """The question of an address."""

    query: JobQuery
    run: int | None = None
    before: int | None = None
    run_state: RunState | None = None
    action: str = ""
    name: str = ""
    """Of a group or user that is to be changed."""
    glue: int | None = None


def address_of(path: str | None) -> JobAddress | None:
    """The page of jobs at a path; None when it is another page."""
    if path in PARTS:
        return JobAddress(path or ROOT)
    pieces = (path or "").split("/")
    if pieces[:2] != ["", "jobs"] or len(pieces) not in {3, 4}:
        return None
    job_id, part = number_of(pieces[2]), pieces[3] if len(pieces) == 4 else ""
    if job_id is None or part not in JOB_PARTS or (len(pieces) == 4 and not part):
        return None
    return JobAddress(ROOT, job_id, part)


def view_of(search: str | None) -> JobView:
    """The question of an address's query."""
    given = _given(search)
    return JobView(
        query=JobQuery(
            text=given.get("q", "").strip()[:QUERY_MAX],
            app_name=given.get("group", "")[:64],
            state=_among(JobState, given.get("state", "")) or JobState.ANY,
            order=_among(JobOrder, given.get("sort", "")) or JobOrder.NUMBER,
            page=min(number_of(given.get("page", "")) or 1, 1_000_000),
        ),
        run=number_of(given.get("run", "")),
        before=number_of(given.get("before", "")),
        run_state=_among(RunState, given.get("rstate", "")),
        action=given.get("do", "")[:16],
        name=given.get("name", "")[:64],
        glue=number_of(given.get("glue", "")),
    )


def linked(path: str, search: str | None, **changes: object) -> str:
    """A path with the same query but for what changes; what is empty is left out."""
    wanted = {name: str(value) for name, value in changes.items() if value is not None}
    query = {name: value for name, value in (_given(search) | wanted).items() if value}
    for name, value in changes.items():
        if value is None:
            query.pop(name, None)
    return path + (f"?{urlencode(query)}" if query else "")


def elsewhere(path: str, search: str | None, **asked: object) -> str:
    """Another page, with what goes with the reader and nothing else of the query."""
    kept = {name: value for name, value in _given(search).items() if name in AROUND}
    wanted = kept | {name: str(value) for name, value in asked.items()}
    return path + (f"?{urlencode(wanted)}" if wanted else "")


def number_of(text: str) -> int | None:
    """A number from 1 on; None for anything else."""
    sound = text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS
    return int(text) or None if sound else None


def _given(search: str | None) -> dict[str, str]:
    try:
        read = parse_qs((search or "").lstrip("?")[:8_000], max_num_fields=100)
    except ValueError:
        return {}
    return {name: values[-1] for name, values in read.items()}


def _among(kind: type[Word], text: str) -> Word | None:
    return next((one for one in kind if one.value == text), None)
