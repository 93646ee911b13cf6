"""Entry point for `python3 -m provision SCOPE`, which installs everything in that scope.

Scopes: `run` (what the product needs), `rocketmq` (what a demo on a real RocketMQ needs as well),
`test` (all that tests need), `slow` (what the slow ones need as well) or `python` (the environment
alone: what the fast tests and `make check` need).
"""

from __future__ import annotations

import sys

# Before the other imports: they use syntax an older Python cannot read.
if sys.version_info < (3, 11):
    sys.exit(
        "Tidemark needs Python 3.11 or later, this is %d.%d; "
        "name a newer one with `make PYTHON=python3.12`." % sys.version_info[:2]
    )

import time

from provision import chromium, commit_hook, environment, grpc_client, jars, java, servers
from provision.errors import ProvisionError
from provision.places import ROOT
from provision.spark import one_at_a_time, remember_classes

SCOPES = ("python", "run", "rocketmq", "test", "slow")


def main(arguments: list[str]) -> int:
    """Bring what the named scope needs; return the exit code."""
    if len(arguments) != 1 or arguments[0] not in SCOPES:
        print(f"usage: python3 -m provision {'|'.join(SCOPES)}", file=sys.stderr)
        return 2
    started = time.monotonic()
    try:
        with one_at_a_time():
            provide(arguments[0])
    except ProvisionError as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 1
    print(f"set-up: ready in {time.monotonic() - started:.1f} s ({ROOT})", flush=True)
    return 0


def provide(scope: str) -> None:
    """Bring the environment; unless that is all, Java and the Delta jars; the compiler and RocketMQ
    where it is played or tested; for tests executors of XXL-Job, a browser, two database servers
    and Alertmanager too, for the slow ones an earlier RocketMQ, its proxy and a gRPC client. In a
    clone git starts the commit hook.
    """
    environment.ensure()
    commit_hook.ensure()
    if scope == "python":
        return
    with_rocketmq = scope in ("rocketmq", "test", "slow")
    java_home = java.ensure(with_compiler=with_rocketmq)
    jars.ensure(jars.DELTA, java_home=java_home)
    remember_classes(java_home)
    if with_rocketmq:
        jars.ensure(jars.ROCKETMQ, java_home=java_home)
    if scope in ("test", "slow"):
        for jar_set in jars.XXL_JOB.values():
            jars.ensure(jar_set, java_home=java_home)
        chromium.ensure()
        servers.ensure()
    if scope == "slow":
        jars.ensure(jars.EARLIER_ROCKETMQ, java_home=java_home)
        jars.ensure(jars.ROCKETMQ_PROXY, java_home=java_home)
        grpc_client.ensure()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
