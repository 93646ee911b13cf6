"""Runs commands of RocketMQ's own `mqadmin` in one JVM on a cluster in a known state.

`AdminSession.java` makes topics, groups, messages and connected clients, and reads commands from
its standard input. The same session against our engine and against Apache RocketMQ gives two lists
of outputs that should be equal once times, ids and addresses are replaced.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from demo.rocketmq import OPENS
from tests.interop.java_clients import JavaChecks
from tests.interop.mqadmin_commands import COMMANDS, normalised, read_outputs, write_inputs

EXPECTED = Path(__file__).parent / "expected" / "mqadmin.txt"
"""What Apache RocketMQ 5.5 printed, normalised; `make record-mqadmin` writes it again."""


@dataclass
class AdminSession:
    """A running session: facts of the state it made, and `run` for one command more."""

    process: subprocess.Popen[str]
    facts: dict[str, str]
    folder: Path

    def run(self, command: str) -> str:
        """The output of one command; `{fact}` in it is replaced by the fact."""
        words = [word.format(**self.facts) for word in command.split()]
        assert self.process.stdin is not None
        self.process.stdin.write("\t".join(words) + "\n")
        self.process.stdin.flush()
        lines: list[str] = []
        for line in _lines(self.process):
            if line.startswith("|"):
                lines.append(line[1:])
            elif line.startswith("END "):
                return "\n".join(lines).strip("\n")
        raise AssertionError(f"the session ended within {command!r}:\n" + "\n".join(lines))


@contextmanager
def admin_session(
    checks: JavaChecks, name_server: str, broker: str, folder: Path
) -> Iterator[AdminSession]:
    """Make the state in the cluster, yield a session on it, end the JVM."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        *("setpriv", "--pdeathsig", "KILL", str(checks.java_home / "bin" / "java")),
        *(*OPENS, "-Xms64m", "-Xmx512m", "-XX:TieredStopAtLevel=1"),
        *("-Djava.net.preferIPv4Stack=true", f"-Duser.home={folder}", "-Duser.timezone=UTC"),
        *("-cp", checks.class_path, "AdminSession", name_server, broker),
    ]
    facts = {"ns": name_server, "broker": broker, "folder": str(folder)}
    log = folder / "session.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
        ) as process,
    ):
        try:
            for line in _lines(process):
                word, _, rest = line.partition(" ")
                if word == "READY":
                    break
                if word == "FACT":
                    name, _, value = rest.partition(" ")
                    facts[name] = value
            else:
                raise AssertionError(f"the state could not be made:\n{log.read_text()}")
            yield AdminSession(process, facts, folder)
        finally:
            process.kill()


def said_by_mqadmin(checks: JavaChecks, folder: Path, *words: str) -> str:
    """What `mqadmin` prints for one sub-command with its options, in a JVM of its own; it signs as
    conf/tools.yml of the folder says, if that is there.
    """
    command = [
        *(str(checks.java_home / "bin" / "java"), "-XX:TieredStopAtLevel=1"),
        *(f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}"),
        *("-cp", checks.class_path),
        *("org.apache.rocketmq.tools.command.MQAdminStartup", *words),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=folder
    )
    return done.stdout + done.stderr


def run_all(session: AdminSession) -> dict[str, list[str]]:
    """Every command in its order, then the files they wrote; normalised outputs, by a title.

    A command that runs again, in another state, has its number in its title.
    """
    write_inputs(session.folder)
    outputs: dict[str, list[str]] = {}
    for command in COMMANDS:
        count = sum(title.partition(" #")[0] == command for title in outputs)
        title = command if not count else f"{command} #{count + 1}"
        outputs[title] = normalised(command, session.run(command))
    for name, text in read_outputs(session.folder).items():
        outputs[name] = normalised(name, text)
    return outputs


def written(outputs: dict[str, list[str]]) -> str:
    """Outputs as the text of an expectation file."""
    return "".join(f"## {title}\n{chr(10).join(lines)}\n" for title, lines in outputs.items())


def read(text: str) -> dict[str, list[str]]:
    """The reverse of `written`."""
    outputs: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("## "):
            lines = outputs[line[3:]] = []
        elif line:
            lines.append(line)
    return outputs


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """Lines of standard output, without their ends; pytest's own time limit bounds the wait."""
    output: IO[str] | None = process.stdout
    assert output is not None
    while line := output.readline():
        yield line.rstrip("\n")
