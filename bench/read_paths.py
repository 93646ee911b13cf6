"""Measures the cost of each path from store file to socket and from memory to file.

    python -m bench.read_paths

Row C6 (docs/rows.md): the answer of a pull lies in the commit log, in one run or, where other
queues' messages lie
between, in many. It can be read as a stream, by pread, through a mapping, or left to the kernel; it
can be joined or gathered. Figures are CPU microseconds of the sending thread, the least of several
rounds; another thread reads the other end. Below: writing a record from ordinary memory (heap),
from a page-aligned anonymous mapping (a direct buffer, in Java's words), through a file mapping.
"""

from __future__ import annotations

import mmap
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from engine.foundation.units import KIB, MIB

ROUNDS: Final = 5
TIMES: Final = 300
FILE_BYTES: Final = 64 * MIB
SIZES: Final = (4 * KIB, 36 * KIB, 256 * KIB)
PIECES: Final = 32
RECORD: Final = os.urandom(KIB)

Send = Callable[[socket.socket, int, int], object]
"""(socket, position in the file, size in bytes)"""


def drain(end: socket.socket) -> None:
    """Read whatever comes, until the other end closes."""
    buffer = bytearray(MIB)
    while end.recv_into(buffer):
        pass


def cpu_us(send: Send, size_bytes: int) -> float:
    """CPU microseconds of this thread for one answer, the least of several rounds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    reader = threading.Thread(target=drain, args=(theirs,))
    reader.start()
    rounds = []
    for _ in range(ROUNDS):
        begun = time.thread_time()
        for number in range(TIMES):
            send(ours, number * 3 * size_bytes % (FILE_BYTES - 3 * size_bytes), size_bytes)
        rounds.append((time.thread_time() - begun) / TIMES * 1e6)
    ours.close()
    reader.join()
    theirs.close()
    return min(rounds)


def ways(path: Path) -> dict[str, Send]:
    """One run: every way there is. Many pieces: the two that send them in order."""
    descriptor = os.open(path, os.O_RDONLY)
    stream = path.open("rb")
    view = memoryview(mmap.mmap(descriptor, FILE_BYTES, prot=mmap.PROT_READ))

    def by_stream(end: socket.socket, position: int, size_bytes: int) -> None:
        stream.seek(position)
        end.sendall(stream.read(size_bytes))

    def by_sendfile(end: socket.socket, position: int, size_bytes: int) -> None:
        sent = 0
        while sent < size_bytes:
            sent += os.sendfile(end.fileno(), descriptor, position + sent, size_bytes - sent)

    def pieces(position: int, size_bytes: int) -> list[memoryview]:
        piece = size_bytes // PIECES
        return [
            view[at : at + piece] for at in range(position, position + 2 * size_bytes, 2 * piece)
        ]

    def gathered(end: socket.socket, position: int, size_bytes: int) -> None:
        parts = pieces(position, size_bytes)
        sent = os.writev(end.fileno(), parts)
        for part in parts:
            if sent < len(part):
                end.sendall(part[sent:])
            sent = max(0, sent - len(part))

    return {
        "stream: seek, read, send": by_stream,
        "pread, send": lambda end, at, size: end.sendall(os.pread(descriptor, size, at)),
        "mapping: send a view": lambda end, at, size: end.sendall(view[at : at + size]),
        "mapping: copy, send": lambda end, at, size: end.sendall(bytes(view[at : at + size])),
        "sendfile": by_sendfile,
        f"{PIECES} pieces: join, send": lambda end, at, size: end.sendall(
            b"".join(pieces(at, size))
        ),
        f"{PIECES} pieces: writev of views": gathered,
    }


def measure_reading(path: Path) -> Table:
    """CPU microseconds an answer, by its size."""
    table = Table(title=f"from the commit log to the socket, CPU us an answer, least of {ROUNDS}")
    table.add_column("way")
    for size_bytes in SIZES:
        table.add_column(f"{size_bytes // KIB} KiB", justify="right")
    for name, send in ways(path).items():
        table.add_row(name, *(f"{cpu_us(send, size_bytes):.1f}" for size_bytes in SIZES))
    return table


def measure_writing(path: Path) -> Table:
    """CPU microseconds to bring 1 KiB into a file that has its full length."""
    descriptor = os.open(path, os.O_RDWR)
    direct = mmap.mmap(-1, 4 * KIB)
    direct[: len(RECORD)] = RECORD
    held = memoryview(direct)[: len(RECORD)]
    mapped = mmap.mmap(descriptor, FILE_BYTES)
    stream = path.open("r+b", buffering=64 * KIB)

    def into_the_mapping(position: int) -> None:
        mapped[position : position + len(RECORD)] = RECORD

    def by_stream(position: int) -> None:
        stream.seek(position)
        stream.write(RECORD)
        stream.flush()

    kinds: dict[str, Callable[[int], object]] = {
        "pwrite from heap": lambda at: os.pwrite(descriptor, RECORD, at),
        "pwrite from a direct buffer": lambda at: os.pwrite(descriptor, held, at),
        "store into a file mapping": into_the_mapping,
        "buffered stream, flushed": by_stream,
    }
    table = Table(title=f"1 KiB from memory into the page cache, CPU us, least of {ROUNDS}")
    table.add_column("way")
    table.add_column("us", justify="right")
    for name, write in kinds.items():
        rounds = []
        for _ in range(ROUNDS):
            begun = time.thread_time()
            for number in range(20_000):
                write(number * len(RECORD))
            rounds.append((time.thread_time() - begun) / 20_000 * 1e6)
        table.add_row(name, f"{min(rounds):.2f}")
    return table


def main() -> None:
    """Print both tables."""
    console = Console(width=140)
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-paths-", dir=".") as folder:
        path = Path(folder) / "log"
        path.write_bytes(os.urandom(MIB) * (FILE_BYTES // MIB))
        console.print(measure_reading(path))
        console.print(measure_writing(path))


if __name__ == "__main__":
    main()
