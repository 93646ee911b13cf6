"""Set-up folders, either in a working copy or in the user's cache for an installed package.

Those of a working copy are ignored by git. All of it is safe to delete.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The folder of the working copy, or the one that the package is installed in."""
IS_CLONE = (ROOT / "uv.lock").is_file()
"""Does this code run in a working copy? It is an installed package otherwise."""


def user_cache() -> Path:
    """Folder of an installed package's files: TIDEMARK_CACHE, else one in the user's cache."""
    named = os.environ.get("TIDEMARK_CACHE")
    if named:
        return Path(named).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tidemark"


VENV = ROOT / ".venv" if IS_CLONE else Path(sys.prefix)
CACHE = ROOT / ".cache" if IS_CLONE else user_cache()
JAVA_LINK = (VENV if IS_CLONE else CACHE) / "java-home"
"""The Java that was found fit; `tidemark` runs Spark on it."""
NOTEBOOKS = ROOT / "notebooks"
JUPYTER = CACHE / "jupyter"
DELTA_VERSION = "4.4.0"


def delta_jars() -> Path:
    """Folder of the two Delta jars; a shared one may be named by TIDEMARK_JARS.

    Installed packages of several versions share the user's cache: there the folder has a version.
    """
    named = os.environ.get("TIDEMARK_JARS")
    if named:
        return Path(named).expanduser().resolve()
    return CACHE / ("jars" if IS_CLONE else f"delta-{DELTA_VERSION}")


def rocketmq_jars() -> Path:
    """Folder of the Apache RocketMQ jars that the interop tests and `demo --rocketmq` compile and
    run against; a shared one may be named by TIDEMARK_ROCKETMQ_JARS.
    """
    named = os.environ.get("TIDEMARK_ROCKETMQ_JARS")
    return Path(named).expanduser().resolve() if named else CACHE / "rocketmq-5.5.0"


def earlier_rocketmq_jars() -> Path:
    """Folder of the jars of Apache RocketMQ 4.9.7, which one test watches; see `make test-slow`."""
    return CACHE / "rocketmq-4.9.7"


def rocketmq_proxy_jars() -> Path:
    """Folder of what the proxy of Apache RocketMQ needs beside those jars; see `make test-slow`."""
    return CACHE / "rocketmq-proxy-5.5.0"


def grpc_client() -> Path:
    """Environment of the gRPC client of RocketMQ 5.x in Python; see `make test-slow`."""
    return CACHE / "rocketmq-python-client"


def xxl_job_jars(version: str) -> Path:
    """Folder of the jars of an XXL-Job executor, which the interop tests talk to."""
    return CACHE / f"xxl-job-{version}"
