"""The demo on a real Apache RocketMQ as a user runs it: two JVMs, Java clients, an observer.

It plays for two minutes; `make demo-rocketmq` runs it alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from demo.plan import LEDGER, Incident, make_plan
from tests.integration.demo.process_list import marked, processes_of

SEED, DURATION_S = 1, 120
RUN_TIMEOUT_S = 900


@pytest.mark.slow
@pytest.mark.timeout(RUN_TIMEOUT_S + 60)
def test_every_incident_on_a_real_rocketmq_is_found_from_outside(tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = [str(Path(sys.prefix) / "bin" / "tidemark"), "demo", "--rocketmq", "--headless"]
    command += ["--port", "0", "--for", str(DURATION_S), "--seed", str(SEED), "--home", str(home)]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=marked(home),
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    for incident in Incident:
        (line,) = (
            one for one in done.stdout.splitlines() if one.startswith(f"│ {incident.value} ")
        )
        assert line.count(" yes ") == 2, f"played and found: {line}"
    assert "failed checks: none" in done.stdout
    assert not processes_of(home)
    assert_the_kill_cost_a_message_twice(home)


def assert_the_kill_cost_a_message_twice(home: Path) -> None:
    """The message on which a member died was worked on again by the other one."""
    scene = make_plan(SEED, DURATION_S, incidents=tuple(Incident)).scene(Incident.CONSUMER_KILL)
    assert scene is not None
    last = work_done(home, str(scene.victim))[-1]
    others = [
        place for one in LEDGER.members if one != scene.victim for place in work_done(home, one)
    ]
    assert Counter(others)[last] >= 1


def work_done(home: Path, name: str) -> list[tuple[str, int, int]]:
    """(topic, queue id, queue offset) of every message a member has worked on, in order."""
    lines = (home / "ledgers" / f"{name}.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    return [(one["pulled_from"], one["queue_id"], one["queue_offset"]) for one in entries]
