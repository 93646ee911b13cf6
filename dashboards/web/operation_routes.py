"""Long actions over HTTP: `GET /api/operations` and `GET /api/operations/ID`, as JSON.

Place in the walk: behind the guard, beside the pages; for users who have signed in, and for
visitors who may see pages of jobs without. At most a hundred are listed, with the last twenty lines
of each.

Absent on purpose: starting and stopping them, which `tidemark operations` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI
from starlette.responses import JSONResponse

from dashboards.access.visitors import Visitors, this_visit
from engine.foundation.errors import ConfigError, StorageError
from pipelines.operations.service import operation_json
from pipelines.scheduler.page_queries import PageService

ID_CHARS_MAX: Final = 64
NOT_NOW: Final = "the database cannot be asked now"
STRANGER: Final = "sign in first"
UNKNOWN: Final = "there is no such operation, or no more"
_HEADERS: Final = {"cache-control": "no-store"}


def add_operations(server: FastAPI, visitors: Visitors) -> None:
    """The two addresses."""

    @server.get("/api/operations")
    def listed() -> JSONResponse:
        """The newest ones."""
        return _answered(visitors, lambda service: {"operations": _all(service)})

    @server.get("/api/operations/{operation_id}")
    def one(operation_id: str) -> JSONResponse:
        """One of them."""
        return _answered(visitors, lambda service: _one(service, operation_id))


def _all(service: PageService | None) -> list[dict[str, Any]]:
    return [] if service is None else [operation_json(one) for one in service.operations()]


def _one(service: PageService | None, operation_id: str) -> dict[str, Any] | None:
    if service is None or len(operation_id) > ID_CHARS_MAX:
        return None
    found = service.operation(operation_id)
    return None if found is None else operation_json(found)


def _answered(
    visitors: Visitors, ask: Callable[[PageService | None], dict[str, Any] | None]
) -> JSONResponse:
    try:
        visitor = visitors.visitor(this_visit())
        if visitor.is_stranger:
            return JSONResponse({"said": STRANGER}, 401, headers=_HEADERS)
        answer = ask(visitors.service(visitor))
    except (StorageError, ConfigError):
        return JSONResponse({"said": NOT_NOW}, 503, headers=_HEADERS)
    if answer is None:
        return JSONResponse({"said": UNKNOWN}, 404, headers=_HEADERS)
    return JSONResponse(answer, headers=_HEADERS)
