"""The Java checks are fair: the real broker passes them, so a failure on ours is ours.

The quickest one runs in the suite; it also shows that the pinned jars make a working cluster. The
others are the same programs and passed there when they were written; `make test-slow` repeats that.
"""

from __future__ import annotations

import pytest

from tests.interop.java_clients import CHECK_TIMEOUT_S, CHECKS, JavaChecks
from tests.interop.real_rocketmq import RealRocketMQ

QUICK = "RequestReply"
"""Quick and always the same. Orderly is not: RocketMQ's handlers run in several threads, so that a
leaving member's last commit may come after the next member's question, and messages come again.
"""


@pytest.mark.timeout(CHECK_TIMEOUT_S + 60)
@pytest.mark.parametrize(
    "check",
    [check if check == QUICK else pytest.param(check, marks=pytest.mark.slow) for check in CHECKS],
)
def test_java_check_passes_on_apache_rocketmq(
    check: str, java_checks: JavaChecks, apache_rocketmq: RealRocketMQ
) -> None:
    verdict = java_checks.judge(check, apache_rocketmq.name_server)
    assert verdict.startswith(f"PASS {check} "), verdict
