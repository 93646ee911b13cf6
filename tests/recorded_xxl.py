"""The recorded exchange of a real Java executor (xxl-job-core 2.4.2) and its admin."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CASES = Path(__file__).parent / "cases" / "xxl_wire.json"


@dataclass(frozen=True)
class Recorded:
    """One call. `request` is None for a GET; `response` is the body that came back, or None where
    the admin's answer was not recorded."""

    path: str
    token: str
    request: bytes | None
    response: bytes | None


@cache
def to_executor() -> tuple[Recorded, ...]:
    """What the admin asked, in order."""
    return tuple(
        Recorded(
            told["path"],
            told["token"],
            None if told["request"] is None else told["request"].encode(),
            told["response"]["body"].encode(),
        )
        for told in _exchanges()
        if told["dir"] == "admin->executor"
    )


@cache
def to_admin() -> tuple[Recorded, ...]:
    """What the executor told, in order."""
    return tuple(
        Recorded(told["path"], told["headers"]["XXL-JOB-ACCESS-TOKEN"], told["body"].encode(), None)
        for told in _exchanges()
        if told["dir"] == "executor->admin"
    )


def _exchanges() -> list[dict]:
    return json.loads(CASES.read_text(encoding="utf-8"))["versions"]["2.4.2"]
