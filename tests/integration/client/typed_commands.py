"""`tidemark admin ...` as a user types it, against a running engine."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from tests.interop.our_engine import OurEngine
from tidemark import app


def tidemark(engine: OurEngine, *words: str) -> Result:
    """Run `tidemark admin ...`."""
    return CliRunner().invoke(app, ["admin", *words], env={"NAMESRV_ADDR": engine.name_server})


def done(engine: OurEngine, *words: str) -> str:
    """What an order says that is carried out."""
    answer = tidemark(engine, *words)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def answered(engine: OurEngine, *words: str) -> Any:
    """What it answers with `--json`."""
    return json.loads(done(engine, *words, "--json"))


def refused(engine: OurEngine, *words: str) -> str:
    """The one line of a refusal: exit code 1, nothing on standard output, no traceback."""
    answer = tidemark(engine, *words)
    assert answer.exit_code == 1, answer.output
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    return line
