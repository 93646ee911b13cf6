"""Locates Apache RocketMQ's jars and Java runtime, and builds the command lines to run them.

These are the command lines of its name server, its broker and programs on its client library.

Place in the walk: beside the platform; `tidemark demo --rocketmq` observes such a cluster, and the
interop tests compare ours with it. Invariant: everything a party writes stays in its folder. Absent
on purpose: processes (the caller that starts one decides how it ends) and the download of jars;
`make setup` and `tidemark setup --rocketmq` do that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from demo.processes import StageError
from engine.foundation.errors import ConfigError
from provision.places import CACHE, JAVA_LINK

VERSION: Final = "5.5.0"
JARS_VARIABLE: Final = "TIDEMARK_ROCKETMQ_JARS"
PROJECT_JARS: Final = CACHE / f"rocketmq-{VERSION}"
COMPILE_TIMEOUT_S: Final = 120
SET_UP: Final = "run `tidemark setup --rocketmq`"

OPENS: Final = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)
"""The broker unmaps files and reads direct-memory counters by reflection; Java 17 and later ask for
these.
"""
SMALL: Final = ("-Xms32m", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a client's JVM that starts soon and does little."""
CLIENT: Final = "client"
"""The name under which programs log, all of a folder into one file."""
LOG_CONFIGURATION: Final = """<configuration>
<appender name="F" class="ch.qos.logback.core.FileAppender"><file>{file}</file>
<encoder><pattern>%d{{HH:mm:ss.SSS}} %p %t %logger{{0}} - %m%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="F"/></root></configuration>
"""


@dataclass(frozen=True, slots=True)
class Party:
    """A server of RocketMQ's."""

    name: str
    main_class: str
    heap: str
    ready: str
    """How the line begins in which it says that it is up."""


NAME_SERVER: Final = Party(
    "namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", "256m", "The Name Server boot success"
)
BROKER: Final = Party("broker", "org.apache.rocketmq.broker.BrokerStartup", "512m", "The broker[")


@dataclass(frozen=True, slots=True)
class Installation:
    """What there is to run it with."""

    java_home: Path
    jars: Path

    def party_command(self, party: Party, folder: Path) -> list[str]:
        """Command line of a server that was configured in `folder`."""
        return [
            *(self._java, *OPENS, f"-Xms{party.heap}", f"-Xmx{party.heap}"),
            *("-XX:MaxDirectMemorySize=512m", "-Djava.net.preferIPv4Stack=true"),
            *(f"-Drocketmq.home.dir={folder}", f"-Duser.home={folder / 'home'}"),
            f"-Drmq.logback.configurationFile={_log(folder, party.name)}",
            *("-cp", f"{folder / 'conf'}:{self.jars}/*"),
            *(party.main_class, "-c", str(folder / "conf" / f"{party.name}.conf")),
        ]

    def program_command(self, folder: Path, main_class: str) -> list[str]:
        """Command line of a program that was compiled in `folder`, its arguments to be added."""
        return [
            *(self._java, *SMALL, "-Djava.net.preferIPv4Stack=true"),
            *(f"-Duser.home={folder / 'home'}", f"-Drmq.logback.configurationFile={_log(folder)}"),
            *("-cp", f"{folder / 'classes'}:{self.jars}/*", main_class),
        ]

    def compile(self, sources: Iterable[Path], classes: Path) -> None:
        """Compile programs on the client library; StageError with what javac says against them."""
        done = subprocess.run(
            [
                *(str(self.java_home / "bin" / "javac"), "-nowarn", "-proc:none"),
                *("-cp", f"{self.jars}/*", "-d", str(classes), *map(str, sorted(sources))),
            ],
            capture_output=True,
            text=True,
            timeout=COMPILE_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise StageError(f"javac refused the programs:\n{done.stderr}")

    @property
    def _java(self) -> str:
        return str(self.java_home / "bin" / "java")


def find_installation() -> Installation:
    """The jars of the project, or those that the environment names, and a Java with a compiler.

    Raises ConfigError, which says how to bring it, when one is missing.
    """
    named = os.environ.get(JARS_VARIABLE)
    jars = Path(named).expanduser().absolute() if named else PROJECT_JARS
    if not (jars / f"rocketmq-broker-{VERSION}.jar").is_file():
        what = f"a folder with the jars of Apache RocketMQ {VERSION}: {SET_UP}"
        raise ConfigError(JARS_VARIABLE, str(jars), what)
    homes = list(_java_homes())
    for java in homes:
        if (java / "bin" / "javac").exists():
            return Installation(java, jars)
    tried = ":".join(map(str, homes))
    raise ConfigError("JAVA_HOME", tried, f"a Java 17 to 21 with javac: {SET_UP}")


def _java_homes() -> Iterator[Path]:
    """What set-up found fit, what the environment names, and what is on PATH."""
    if JAVA_LINK.exists():
        yield JAVA_LINK.resolve()
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named).resolve()
    if compiler := shutil.which("javac"):
        yield Path(compiler).resolve().parent.parent


def configure(folder: Path, party: Party, properties: Mapping[str, str]) -> None:
    """Write what a server reads at its start, and where it logs."""
    for name in ("conf", "home", "store"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    lines = (f"{key}={value}\n" for key, value in properties.items())
    (folder / "conf" / f"{party.name}.conf").write_text("".join(lines))
    configure_log(folder, party.name)


def configure_log(folder: Path, name: str = CLIENT) -> None:
    """Say where a server, or the programs, log; also as servers before 5.0 look for it."""
    for path in (_log(folder, name), folder / "conf" / f"logback_{name}.xml"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(LOG_CONFIGURATION.format(file=folder / f"{name}.log"))


def _log(folder: Path, name: str = CLIENT) -> Path:
    return folder / "conf" / f"rmq.{name}.logback.xml"


def broker_properties(name_server: str, port: int, store: Path) -> dict[str, str]:
    """Configuration of a small broker, with the defaults of a fresh installation otherwise."""
    return {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": "0",
        "brokerRole": "ASYNC_MASTER",
        "flushDiskType": "ASYNC_FLUSH",
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": str(port),
        "namesrvAddr": name_server,
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
        "mappedFileSizeCommitLog": str(64 << 20),
        "autoCreateTopicEnable": "true",
        "autoCreateSubscriptionGroup": "true",
        "enablePropertyFilter": "true",
        "diskMaxUsedSpaceRatio": "98",
    }
