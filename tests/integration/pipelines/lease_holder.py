"""A process that asks for a lease, says what it got, and keeps it until it is asked to go.

    python -m tests.integration.pipelines.lease_holder LAKE ROLE HEARTBEAT_S

It prints `held TOKEN` or `refused SENTENCE`, then answers each line of its input: `held?` with True
or False, `lost?` likewise, and `go` by giving the lease back.
"""

from __future__ import annotations

import sys

from pipelines.lake.lake import Lake
from pipelines.lake.lease import LeaseHeld, acquire


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(address: str, role: str, heartbeat_s: float) -> None:
    try:
        lease = acquire(
            Lake.at(address), role, heartbeat_s=heartbeat_s, stale_after_s=3 * heartbeat_s
        )
    except LeaseHeld as error:
        say(f"refused {error}")
        return
    with lease:
        say(f"held {lease.holder.token}")
        for line in sys.stdin:
            if line.strip() == "go":
                break
            say(lease.is_held if line.strip() == "held?" else lease.is_lost)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
