"""Follows the log of a run on a page: asks its executor for the next lines.

Invariant: what waits for executors has a few threads of its own, so that those which do not answer
hold up no page that asks none. Rights are asked for with each page of lines.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from dash import no_update

from dashboards.formatting import visible
from dashboards.job_url_state import address_of, view_of
from dashboards.page_context import PageContext
from dashboards.pages.job_components import exact
from engine.foundation.errors import ConfigError, TidemarkError
from pipelines.scheduler.roles import NotPermitted

ASKS_AT_ONCE: Final = 4
"""Questions to executors; each may wait for an answer for some seconds. Beyond ASKS_WAITING_MAX a
page gets nothing new, and asks again with its next tick."""
ASKS_WAITING_MAX: Final = 16


class Logs:
    """Logs of runs, asked for at their executors, so many at a time."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._asks = ThreadPoolExecutor(ASKS_AT_ONCE, thread_name_prefix="ask")
        self._under_way = 0

    async def beside(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do it in one of the few threads for it; no_update when too many wait."""
        if self._under_way >= ASKS_WAITING_MAX:
            return no_update
        self._under_way += 1
        try:
            context = contextvars.copy_context()
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._asks, context.run, work, *arguments)
        finally:
            self._under_way -= 1

    def page(self, path: str | None, search: str | None, known: Any) -> dict[str, Any] | None:
        """The next lines of the run that the address names; None when it names none of his."""
        address, view = address_of(path), view_of(search)
        if address is None or address.job_id is None or view.run is None or address.job_part:
            return None
        if self._context.visitors is None:
            return None
        from_line = _next_line(known, view.run)
        empty = {
            "run": view.run,
            "from_line": from_line,
            "to_line": 0,
            "text": "",
            "is_end": False,
        }
        try:
            visitor = self._context.visitor()
            service = self._context.visitors.service(visitor)
            if service is None or service.run(view.run).job_id != address.job_id:
                return None
            token = self._context.executor_token
            page = service.log_of_run(view.run, from_line=from_line, token=token)
        except (NotPermitted, ConfigError):
            return None
        except TidemarkError as error:
            return empty | {"said": f"Its log cannot be read now: {visible(error)}"}
        return empty | {
            "to_line": page.to_line,
            "text": exact(page.text),
            "is_end": page.is_end,
            "said": _log_said(page.to_line, is_end=page.is_end),
        }


def _next_line(known: Any, run: int) -> int:
    if not isinstance(known, dict) or known.get("run") != run:
        return 1
    from_line, to_line = known.get("from_line"), known.get("to_line")
    if type(from_line) is not int or type(to_line) is not int:
        return 1
    return max(1, from_line, to_line + 1)


def _log_said(to_line: int, *, is_end: bool) -> str:
    if is_end:
        return "The run has ended." if to_line else "It has no log, or none any more."
    return "It goes on." if to_line else "Nothing is logged yet."
