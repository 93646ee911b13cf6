"""A small house of jobs behind pages, and somebody who asks them by hand over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import sqlalchemy as sa

from dashboards.access.visitors import COOKIE
from dashboards.web.app import build
from pipelines.database.database import Database
from pipelines.lake.lake import Lake
from pipelines.scheduler.store import sessions, tables
from pipelines.scheduler.store.audit import audit_of
from tests.dashboards import jobs_shown
from tests.gold_lake import END

OURS = {
    "origin": "http://localhost",
    "sec-fetch-site": "same-origin",
    "content-type": "application/json",
}
SHOWN = (
    *(f"jobs-{part}-tree.data" for part in ("head", "run", "body")),
    *("jobs-gate.children", "jobs-seen.data"),
)
LOG = ("run-log-page.data", "run-log-card.className", "run-log-tick.disabled")


@dataclass
class House:
    """A database in which something happens, and the numbers of its jobs."""

    database: Database
    address: str
    jobs: dict[str, int]

    def rows(self) -> str:
        """All that a change would change."""
        names = ("jobs", "runs", "glue_versions", "job_groups", "job_users")
        with self.database.reading() as connection:
            return "\n".join(
                str(connection.execute(sa.select(tables.metadata.tables[name])).all())
                for name in names
            )

    def actions(self, author: str) -> list[str]:
        """What somebody has done, but for signing in; the newest first."""
        return [
            one.action
            for one in audit_of(self.database)
            if one.author == author and not one.action.startswith("sign")
        ]


class Reader:
    """Somebody who asks by hand."""

    def __init__(self, web: httpx.AsyncClient) -> None:
        self.web = web

    async def ask(
        self, outputs: tuple[str, ...], inputs: dict[str, Any], states: dict[str, Any]
    ) -> Any:
        """Call a callback as a browser does; its answer, or None when nothing changes."""
        body = {
            "output": outputs[0] if len(outputs) == 1 else f"..{'...'.join(outputs)}..",
            "outputs": named(outputs) if len(outputs) > 1 else named(outputs)[0],
            "inputs": [{**at(name), "value": value} for name, value in inputs.items()],
            "state": [{**at(name), "value": value} for name, value in states.items()],
            "changedPropIds": list(inputs)[:1],
        }
        answer = await self.web.post(
            "/_dash-update-component", content=json.dumps(body), headers=OURS
        )
        assert answer.status_code in {200, 204}, answer.text
        return answer.json()["response"] if answer.status_code == 200 else None

    async def page(self, path: str, search: str = "") -> str:
        """All that a page shows."""
        inputs = {"tick.n_intervals": 1, "url.pathname": path, "url.search": search}
        shown = await self.ask(SHOWN, inputs, {"jobs-seen.data": None})
        return json.dumps(shown, ensure_ascii=False)

    async def panel(self, path: str, search: str = "", asked: Any = None) -> Any:
        """The panel of a change."""
        inputs = {"change-asked.data": asked, "url.search": search, "url.pathname": path}
        answer = await self.ask(("change-tree.data",), inputs, {})
        return None if answer is None else answer["change-tree"]["data"]

    async def log(self, path: str, search: str) -> Any:
        """Lines of the log of a run."""
        inputs = {"run-log-tick.n_intervals": 1, "url.search": search}
        states = {"url.pathname": path, "run-log-page.data": None}
        return (await self.ask(LOG, inputs, states))["run-log-page"]["data"]

    async def step(self, step: str, action: str, subject: int, **fields: Any) -> Any:
        """A step of a change, with the version and the key of a preview."""
        path = fields.pop("path", f"/jobs/{subject}" if subject else "/jobs")
        asked = {
            "step": step,
            "action": action,
            "subject": subject,
            "values": fields.pop("values", {}),
            "version": fields.pop("version", ""),
            "key": fields.pop("key", "a key"),
            "path": path,
            "search": "",
        }
        return await self.panel(path, "", asked | fields)

    async def preview(self, action: str, subject: int, **fields: Any) -> tuple[Any, dict[str, str]]:
        """The preview, and what has to be sent with it to have it done."""
        panel = await self.step("preview", action, subject, **fields)
        props = panel["props"]
        return panel, {"version": props["data-version"], "key": props["data-key"]}


def at(name: str) -> dict[str, str]:
    element, _, prop = name.partition(".")
    return {"id": element, "property": prop}


def named(outputs: tuple[str, ...]) -> list[dict[str, str]]:
    return [at(name) for name in outputs]


@asynccontextmanager
async def reading(
    lake: Lake, house: House, name: str = "", *, is_local: bool = True
) -> AsyncIterator[Reader]:
    """Somebody who has signed in by this name; by none: who has not."""
    visitors = jobs_shown.visitors_of(house.address, is_local=is_local)
    application: Any = build(lake, clock=lambda: END, visitors=visitors, executor_token="x" * 16)
    transport = httpx.ASGITransport(app=application)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as web:
        if name:
            kept = sessions.kept_password(house.database, name)
            token = sessions.begin_session(house.database, name, kept, now_ms=jobs_shown.NOW_MS)
            assert token is not None
            web.cookies.set(COOKIE, token)
        yield Reader(web)
    visitors.database.close()


def text(panel: Any) -> str:
    return json.dumps(panel, ensure_ascii=False)
