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
            exchange["path"],
            exchange["token"],
            None if exchange["request"] is None else exchange["request"].encode(),
            exchange["response"]["body"].encode(),
        )
        for exchange in _exchanges()
        if exchange["dir"] == "admin->executor"
    )


@cache
def to_admin() -> tuple[Recorded, ...]:
    """What the executor said, in order."""
    return tuple(
        Recorded(
            exchange["path"],
            exchange["headers"]["XXL-JOB-ACCESS-TOKEN"],
            exchange["body"].encode(),
            None,
        )
        for exchange in _exchanges()
        if exchange["dir"] == "executor->admin"
    )


def _exchanges() -> list[dict]:
    return json.loads(CASES.read_text(encoding="utf-8"))["versions"]["2.4.2"]
