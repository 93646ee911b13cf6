"""The Java checks are fair: the real broker passes them, so a failure on ours is ours.

They are the same programs that the suite runs on ours, and passed there when they were written;
`make test-slow` repeats that. That the pinned jars make a working cluster the suite sees by the
stories of `test_python_client_on_real_rocketmq`.
"""

from __future__ import annotations

import pytest

from tests.interop.java_clients import CHECK_TIMEOUT_S, CHECKS, JavaChecks
from tests.interop.real_rocketmq import RealRocketMQ

pytestmark = pytest.mark.slow


@pytest.mark.timeout(CHECK_TIMEOUT_S + 60)
@pytest.mark.parametrize("check", CHECKS)
def test_java_check_passes_on_apache_rocketmq(
    check: str, java_checks: JavaChecks, apache_rocketmq: RealRocketMQ
) -> None:
    verdict = java_checks.judge(check, apache_rocketmq.name_server)
    assert verdict.startswith(f"PASS {check} "), verdict
