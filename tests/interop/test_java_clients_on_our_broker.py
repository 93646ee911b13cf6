"""The unmodified Java client sends to and consumes from our name server and broker."""

from __future__ import annotations

import pytest

from tests.interop.java_clients import CHECK_TIMEOUT_S, CHECKS, JavaChecks
from tests.interop.our_engine import OurEngine


@pytest.mark.timeout(CHECK_TIMEOUT_S + 60)
@pytest.mark.parametrize("check", CHECKS)
def test_java_check_passes_on_our_broker(
    check: str, java_checks: JavaChecks, engine_process: OurEngine
) -> None:
    verdict = java_checks.judge(check, engine_process.name_server)
    assert verdict.startswith(f"PASS {check} "), verdict
