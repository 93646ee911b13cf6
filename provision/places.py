"""Where the set-up keeps things: all inside the project folder, all ignored by git, all safe to
delete.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
CACHE = ROOT / ".cache"
JAVA_LINK = VENV / "java-home"  # The Java that was found fit; `tidemark` runs Spark on it.


def delta_jars() -> Path:
    """Folder of the two Delta jars; a shared one may be named by TIDEMARK_JARS."""
    named = os.environ.get("TIDEMARK_JARS")
    return Path(named).expanduser().resolve() if named else CACHE / "jars"


def rocketmq_jars() -> Path:
    """Folder of the Apache RocketMQ jars that the interop tests and `demo --rocketmq` compile and
    run against; a shared one may be named by TIDEMARK_ROCKETMQ_JARS.
    """
    named = os.environ.get("TIDEMARK_ROCKETMQ_JARS")
    return Path(named).expanduser().resolve() if named else CACHE / "rocketmq-5.5.0"


def earlier_rocketmq_jars() -> Path:
    """Folder of the jars of Apache RocketMQ 4.9.7, which one test watches; see `make test-slow`."""
    return CACHE / "rocketmq-4.9.7"


def xxl_job_jars(version: str) -> Path:
    """Folder of the jars of an XXL-Job executor, which the interop tests talk to."""
    return CACHE / f"xxl-job-{version}"
