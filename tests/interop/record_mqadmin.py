"""The command `make record-mqadmin`: records what commands print on a real Apache RocketMQ."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.interop.java_clients import compile_checks
from tests.interop.mqadmin import EXPECTED, admin_session, run_all, written
from tests.interop.real_rocketmq import AS_SHIPPED, real_rocketmq


def main() -> None:
    """Record."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        checks = compile_checks(work / "checks")
        with (
            real_rocketmq(work / "cluster", AS_SHIPPED) as cluster,
            admin_session(checks, cluster.name_server, cluster.broker, work / "session") as session,
        ):
            outputs = run_all(session)
    EXPECTED.parent.mkdir(exist_ok=True)
    EXPECTED.write_text(written(outputs))


if __name__ == "__main__":
    main()
