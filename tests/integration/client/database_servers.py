"""PostgreSQL, Redis and MariaDB as a test needs them: on a free port of 127.0.0.1, in a folder of
their own, gone when the test ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pymysql
import redis

from demo.ports import free_port_block
from provision import servers

START_TIMEOUT_S = 30
DIES_WITH_THE_TESTS = ("setpriv", "--pdeathsig", "KILL")


@dataclass
class Stoppable:
    """A server that can be stopped and begun again on what it has."""

    address: str
    """What psycopg connects with."""
    _running: Callable[[], AbstractContextManager[int]]
    _held: ExitStack
    _frozen: list[int] = field(default_factory=list)

    def begin(self) -> None:
        """Serve; it comes back when it answers."""
        self._pid = self._held.enter_context(self._running())
        self._held.callback(self.go_on)

    def stop(self) -> None:
        """As by kill -9."""
        self._held.close()

    def freeze(self) -> None:
        """Stand still, all of its processes, as on a machine that does: what is connected stays so,
        who connects gets through, and nobody is answered."""
        self._frozen.append(self._pid)
        os.kill(self._pid, signal.SIGSTOP)
        children = Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text()
        for child in map(int, children.split()):
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGSTOP)
                self._frozen.append(child)

    def go_on(self) -> None:
        """After `freeze`; else nothing."""
        while self._frozen:
            with suppress(ProcessLookupError):
                os.kill(self._frozen.pop(), signal.SIGCONT)


@contextmanager
def postgresql() -> Iterator[str]:
    """A running PostgreSQL; yields what psycopg connects with."""
    with stoppable_postgresql() as server:
        yield server.address


@contextmanager
def stoppable_postgresql() -> Iterator[Stoppable]:
    """A running PostgreSQL that the test may stop and begin again.

    It refuses to run as root, so root runs it as the user that Debian's package made.
    """
    programs = servers.postgresql_programs()
    assert programs is not None, servers.POSTGRESQL_MISSING
    folder = Path(tempfile.mkdtemp(prefix="tidemark-postgresql-"))
    as_user: tuple[str, ...] = DIES_WITH_THE_TESTS
    if os.geteuid() == 0:
        as_user = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")
        as_user += DIES_WITH_THE_TESTS[1:]
        shutil.chown(folder, "postgres")
    try:
        port = free_port_block(1)
        data = folder / "data"
        make = [*as_user, str(programs / "initdb"), "-D", str(data), "-U", "tests", "-A", "trust"]
        made = subprocess.run(
            [*make, "--no-sync", "-E", "UTF8", "--locale=C"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        serve = [*as_user, str(programs / "postgres"), "-D", str(data), "-p", str(port)]
        serve += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        serve += ["-c", "fsync=off"]  # What is written outlives a kill all the same.
        address = f"host=127.0.0.1 port={port} user=tests dbname=postgres"

        def runs() -> AbstractContextManager[int]:
            return running(serve, folder, lambda: psycopg.connect(address).close())

        with ExitStack() as held:
            server = Stoppable(address, runs, held)
            server.begin()
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def redis_server() -> Iterator[int]:
    """A running Redis; yields its port."""
    program = servers.redis_server()
    assert program is not None, servers.REDIS_MISSING
    folder = Path(tempfile.mkdtemp(prefix="tidemark-redis-"))
    try:
        port = free_port_block(1)
        serve = [*DIES_WITH_THE_TESTS, str(program), "--port", str(port), "--bind", "127.0.0.1"]
        serve += ["--dir", str(folder), "--save", "", "--daemonize", "no"]

        def ask() -> None:
            client = redis.Redis(port=port)
            client.ping()
            client.close()

        with running(serve, folder, ask):
            yield port
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def mariadb() -> Iterator[int]:
    """A running MariaDB that lets `root` in without a password; yields its port."""
    program = servers.mariadb_server()
    assert program is not None, servers.MARIADB_MISSING
    folder = Path(tempfile.mkdtemp(prefix="tidemark-mariadb-"))
    data = folder / "data"
    as_root = ["--user=root"] if os.geteuid() == 0 else []
    try:
        make = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", *as_root]
        make += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        made = subprocess.run(make, cwd=folder, capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
        port = free_port_block(1)
        serve = [*DIES_WITH_THE_TESTS, str(program), "--no-defaults", f"--datadir={data}", *as_root]
        serve += ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={folder / 'socket'}"]
        serve += [f"--pid-file={folder / 'pid'}", "--innodb-buffer-pool-size=16M"]
        serve += ["--innodb-flush-log-at-trx-commit=0", "--skip-name-resolve"]

        def ask() -> None:
            pymysql.connect(host="127.0.0.1", port=port, user="root").close()

        with running(serve, folder, ask):
            yield port
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(command: list[str], folder: Path, ask: Callable[[], None]) -> Iterator[int]:
    """Run a server until the end; it is up when `ask` raises no more. Yields its process id."""
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(ask):
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.kill()
        process.wait()


def answers(ask: Callable[[], None]) -> bool:
    """Did `ask` get an answer?"""
    try:
        ask()
    except (
        psycopg.OperationalError,
        pymysql.OperationalError,
        redis.exceptions.ConnectionError,
    ):
        return False
    return True
