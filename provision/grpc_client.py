"""Creates a separate environment for the RocketMQ 5.x gRPC client used by one slow test.

Invariant: nothing is taken whose hash is not in GRPC_CLIENT_PINS, and a stamp of these and of the
Python says that the environment is made. Absent on purpose: the product's environment, whose
OpenTelemetry and protobuf are others.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from provision.environment import configured_index, find_uv, uv_run
from provision.places import grpc_client
from provision.shell import say

GRPC_CLIENT_PINS = Path(__file__).resolve().parent / "rocketmq-python-client.txt"


def ensure() -> None:
    """Make the environment equal to its pins; do nothing when it already is."""
    home = grpc_client()
    stamp = home / "tidemark.stamp"
    digest = hashlib.sha256(GRPC_CLIENT_PINS.read_bytes() + str(sys.version_info[:3]).encode())
    if stamp.is_file() and stamp.read_text() == digest.hexdigest():
        return
    say(f"installing the gRPC client of RocketMQ for Python into {home}")
    uv, index = find_uv(), configured_index()
    uv_run(uv, "venv", "--clear", "--python", sys.executable, str(home))
    into = ("--python", str(home / "bin" / "python"), "--require-hashes")
    chosen = () if index is None else ("--default-index", index)
    only = ("--only-binary", ":all:")
    uv_run(uv, "pip", "sync", *into, *chosen, *only, str(GRPC_CLIENT_PINS))
    stamp.write_text(digest.hexdigest())
