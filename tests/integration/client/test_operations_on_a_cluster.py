"""Long actions on a cluster: offsets reset and dead letters re-driven, asked for by their ids."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tests.integration.alerting.stores import sqlite_address
from tests.integration.client.test_dead_letter_commands import GROUP, TOPIC, kill_three, listed
from tests.interop.our_engine import OurEngine
from tidemark import app


def done(folder: Path, *words: str) -> dict[str, Any]:
    """What came of a long action, once it is over."""
    address = sqlite_address(folder)

    def operations(*asked: str) -> str:
        answer = CliRunner().invoke(app, ["operations", *asked], env={"TIDEMARK_DATABASE": address})
        assert answer.exit_code == 0, f"{answer.output} {answer.exception}"
        return answer.stdout.strip()

    made_id = operations("run", "--", *words)
    operation: dict[str, Any] = json.loads(operations("wait", made_id, "--for", "60", "--json"))
    assert operation["state"] == "DONE"
    return operation


def test_offsets_are_reset_and_dead_letters_redriven_as_operations(
    engine: OurEngine, tmp_path: Path
) -> None:
    asyncio.run(kill_three(engine))
    at = ("--namesrv", engine.name_server)
    redrive = ("--everything", "--why", "fixed", "--who", "ada")
    redriven = done(tmp_path, "admin", "dlq", "redrive", GROUP, *redrive, *at)
    assert (redriven["kind"], redriven["result"]["exit_code"]) == ("redrive", 0)
    assert "3 are re-driven" in redriven["result"]["lines"][-1]
    assert listed(engine) == []
    reset = done(tmp_path, "admin", "offset", "reset", GROUP, TOPIC, "earliest", *at)
    assert (reset["kind"], reset["result"]["exit_code"]) == ("reset", 0)
    assert any("broker" in line for line in reset["result"]["lines"])
