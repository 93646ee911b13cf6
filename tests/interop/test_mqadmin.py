"""RocketMQ 5.5's `mqadmin` works on our cluster and prints what it prints on a real one.

Rows A4, B1, C1, C5 and D6, through RocketMQ's own tools. The suite compares with what the real
cluster printed when it was recorded; `make test-slow` runs both side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.interop.java_clients import JavaChecks
from tests.interop.mqadmin import EXPECTED, admin_session, read, run_all
from tests.interop.mqadmin_commands import COMMANDS, SETTINGS, WRITTEN, comparable
from tests.interop.our_engine import our_engine
from tests.interop.real_rocketmq import AS_SHIPPED, real_rocketmq

Outputs = dict[str, list[str]]
TITLES = list(read(EXPECTED.read_text()))
SESSION_TIMEOUT_S = 240

pytestmark = pytest.mark.timeout(SESSION_TIMEOUT_S)


@pytest.fixture(scope="module")
def ours(java_checks: JavaChecks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outputs]:
    """What mqadmin prints on our cluster."""
    work = tmp_path_factory.mktemp("mqadmin-ours")
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    with (
        our_engine(work / "cluster", *settings) as engine,
        admin_session(java_checks, engine.name_server, engine.broker, work / "session") as session,
    ):
        yield run_all(session)


def test_more_than_forty_sub_commands_are_compared() -> None:
    assert len({command.split()[0] for command in COMMANDS}) >= 40
    assert {title.partition(" #")[0] for title in TITLES} == {*COMMANDS, *WRITTEN}


@pytest.mark.parametrize("title", TITLES)
def test_a_command_prints_what_it_prints_on_a_real_cluster(title: str, ours: Outputs) -> None:
    here, there = comparable(title, ours[title], read(EXPECTED.read_text())[title])
    assert here == there


@pytest.mark.slow
def test_the_recorded_outputs_are_what_a_real_cluster_prints(
    java_checks: JavaChecks, tmp_path: Path
) -> None:
    with (
        real_rocketmq(tmp_path / "cluster", AS_SHIPPED) as cluster,
        admin_session(
            java_checks, cluster.name_server, cluster.broker, tmp_path / "session"
        ) as session,
    ):
        real = run_all(session)
    recorded = read(EXPECTED.read_text())
    differences: list[str] = []
    for title, lines in recorded.items():
        now, before = comparable(title, real[title], lines)
        differences += unified_diff(before, now, title, lineterm="", n=0)
    assert not differences, "\n".join(differences)
