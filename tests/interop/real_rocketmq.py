"""A real Apache RocketMQ on 127.0.0.1: name server and broker, started from the pinned jars as two
JVMs.

It is the peer our client library is tested against, and the reference the Java checks were tried
on.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from demo.ports import free_broker_port, free_port_block
from provision import java
from provision.places import rocketmq_jars

START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 60
POLL_S = 0.2

# A test run that is killed itself leaves no broker behind.
DIES_WITH_THE_TESTS = ("setpriv", "--pdeathsig", "KILL")

# The broker unmaps files and reads direct-memory counters by reflection; on 17 and later it asks
# for these.
JVM_OPENS = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)
LOG_CONFIGURATION = """<configuration>
<appender name="F" class="ch.qos.logback.core.FileAppender"><file>{file}</file>
<encoder><pattern>%d{{HH:mm:ss.SSS}} %p %t %logger{{0}} - %m%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="F"/></root></configuration>
"""


@dataclass(frozen=True)
class RealRocketMQ:
    """Addresses of a running cluster of one name server and one broker, `broker-a` of
    `DefaultCluster`.
    """

    name_server: str
    broker: str
    store: Path
    broker_process_id: int = 0
    """Of the broker's JVM, once it runs."""


@contextmanager
def real_rocketmq(
    work: Path, settings: Mapping[str, str] | None = None, *, clean_stop: bool = False
) -> Iterator[RealRocketMQ]:
    """Start name server and broker below `work`, yield when the broker has registered, stop both at
    the end; with `clean_stop` the broker gets the time to close its store, `work`/store.

    `settings` are further lines of the broker's configuration, such as `{"flushDiskType":
    "SYNC_FLUSH"}`.
    """
    java_home = java.find(with_compiler=False)
    assert java_home is not None, java.missing(with_compiler=False)
    for folder in ("conf", "home", "store"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    name_server_port, broker_port = free_port_block(1), free_broker_port()
    cluster = RealRocketMQ(
        name_server=f"127.0.0.1:{name_server_port}",
        broker=f"127.0.0.1:{broker_port}",
        store=work / "store",
    )
    write_properties(work / "conf" / "namesrv.conf", {"listenPort": str(name_server_port)})
    write_properties(
        work / "conf" / "broker.conf",
        broker_properties(cluster, broker_port) | dict(settings or {}),
    )
    with jvm(java_home, work, "namesrv", heap="256m") as name_server:
        wait_for_line(name_server, work / "namesrv.out", "boot success")
        with jvm(java_home, work, "broker", heap="512m") as broker:
            wait_for_line(broker, work / "broker.out", "boot success")
            yield replace(cluster, broker_process_id=broker.pid)
            if clean_stop:
                broker.terminate()
                broker.wait(STOP_TIMEOUT_S)


def broker_properties(cluster: RealRocketMQ, port: int) -> dict[str, str]:
    """Configuration of a small broker with the defaults of a fresh installation otherwise."""
    return {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": "0",
        "brokerRole": "ASYNC_MASTER",
        "flushDiskType": "ASYNC_FLUSH",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": str(port),
        "namesrvAddr": cluster.name_server,
        "storePathRootDir": str(cluster.store),
        "storePathCommitLog": str(cluster.store / "commitlog"),
        "mappedFileSizeCommitLog": str(64 << 20),
        "autoCreateTopicEnable": "true",
        "autoCreateSubscriptionGroup": "true",
        "enablePropertyFilter": "true",
        "diskMaxUsedSpaceRatio": "98",
        # Questions sooner than after half a minute. Its op messages must be written sooner still:
        # with 4500, 2000 and its own 3000 it asked about what had ended, and delivered thrice.
        "transactionTimeOut": "2000",
        "transactionOpBatchInterval": "200",
        "transactionCheckInterval": "1500",
    }


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a `key=value` file."""
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


@contextmanager
def jvm(java_home: Path, work: Path, party: str, *, heap: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run one party as a process whose output goes to `<party>.out`.

    It is killed at the end: a clean stop takes the broker up to 20 s, and nobody reads its store
    again.
    """
    main = {
        "namesrv": "org.apache.rocketmq.namesrv.NamesrvStartup",
        "broker": "org.apache.rocketmq.broker.BrokerStartup",
    }[party]
    log = work / "conf" / f"rmq.{party}.logback.xml"
    log.write_text(LOG_CONFIGURATION.format(file=work / f"{party}.log"))
    command = [
        *DIES_WITH_THE_TESTS,
        *(str(java_home / "bin" / "java"), *JVM_OPENS, f"-Xms{heap}", f"-Xmx{heap}"),
        *("-XX:MaxDirectMemorySize=512m", "-Djava.net.preferIPv4Stack=true"),
        *(f"-Drocketmq.home.dir={work}", f"-Duser.home={work / 'home'}"),
        *(f"-Drmq.logback.configurationFile={log}", "-cp", f"{work / 'conf'}:{rocketmq_jars()}/*"),
        *(main, "-c", str(work / "conf" / f"{party}.conf")),
    ]
    with (work / f"{party}.out").open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for_line(process: subprocess.Popen[bytes], out: Path, words: str) -> None:
    """Wait until `words` stand in the output file; fail with that output when they do not come."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while words not in (text := out.read_text(errors="replace")):
        assert process.poll() is None, f"{out.stem} ended with {process.returncode}:\n{text}"
        assert time.monotonic() < deadline, f"{out.stem} not up in {START_TIMEOUT_S} s:\n{text}"
        time.sleep(POLL_S)
