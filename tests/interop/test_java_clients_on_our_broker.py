"""The unmodified Java client sends to and consumes from our name server and broker."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.interop.java_clients import CHECK_TIMEOUT_S, CHECKS, OURS_ALONE, JavaChecks
from tests.interop.our_engine import OurEngine

EVERY = (*CHECKS, *OURS_ALONE)
AT_ONCE = 5
"""Each has topics and groups of its own, and mostly waits: for a rebalance of the Java client."""


@pytest.fixture(scope="module")
def verdicts(
    java_checks: JavaChecks, engine_process: OurEngine
) -> Iterator[dict[str, Future[str]]]:
    """What each check will say."""
    with ThreadPoolExecutor(AT_ONCE) as programs:
        yield {
            check: programs.submit(java_checks.judge, check, engine_process.name_server)
            for check in EVERY
        }


@pytest.mark.timeout(2 * CHECK_TIMEOUT_S + 60)
@pytest.mark.parametrize("check", EVERY)
def test_java_check_passes_on_our_broker(check: str, verdicts: dict[str, Future[str]]) -> None:
    verdict = verdicts[check].result()
    assert verdict.startswith(f"PASS {check} "), verdict
