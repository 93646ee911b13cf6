"""Runs each analytics benchmark in a separate process with its own time limit.

Place in the walk: `python -m bench --only analytics` runs all, `--only analytics.NAME` one. A part
is a module of this folder with `measure(folder, scale)`, which returns figures; it is called by
`python -m bench.analytics NAME`.

Invariant: a part that fails, hangs or is not there costs itself alone: its figures are reported as
not measured, with the reason, and everything that it has started is ended. All of them together end
within TOGETHER_S. Absent on purpose: the measuring.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.analytics.figures import Figure, from_json

TOGETHER_S: Final = 3_600.0
"""All parts; the last ones are left out when others took longer than they should."""
END_PATIENCE_S: Final = 10.0
"""A part that is asked to end may put its processes away."""
MARK: Final = "TIDEMARK_BENCH_PART"
"""A variable by whose value all processes of a part know each other."""
LEAST_S: Final = 5.0
"""With less time left a part is not begun."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of them."""

    name: str
    module: str
    within_s: float
    what: str
    """Its figures in a word, for when there are none."""


PARTS: Final = (
    Part("sampling", "sampling", 60, "sampling of 100,000 queues of groups"),
    Part("upkeep", "upkeep", 900, "files a day, and a question of a quarter of an hour"),
    Part("overview", "overview", 120, "the overview of 1,000 groups"),
    Part("replay", "replay", 120, "replay"),
    Part("p13", "ten_facts", 360, "1,000,000 keys with ten facts each"),
    Part("age", "aged", 600, "a cycle on a lake of 30 days"),
    Part("lag-job", "lag_job", 180, "the lag job beside DuckDB"),
    Part("live-1k", "live_thousand", 180, "1,000 keys that move"),
    Part("live-10k", "live_ten_thousand", 180, "10,000 keys that move"),
    Part("live-1m", "live_million", 420, "1,000,000 keys known"),
    Part("detect", "detect", 180, "time to detect"),
    Part("alert-rules", "alert_rules", 240, "5,000 rules over 10,000 groups"),
    Part("alert-crowd", "alert_crowd", 120, "10,000 alerts at once"),
    Part("alert-notice", "alert_notice", 240, "from a stall to the notice"),
    Part("alert-noise", "alert_noise", 1_800, "noise and misses of 30 days"),
    Part("cluster", "two_workers", 900, "two workers"),
)
BY_NAME: Final = {part.name: part for part in PARTS}


def run_parts(
    parts: Sequence[Part], home: Path, *, scale: float, together_s: float = TOGETHER_S
) -> Iterator[tuple[Part, list[Figure]]]:
    """Each part with its figures, as soon as it has ended."""
    deadline_s = time.monotonic() + together_s
    for part in parts:
        left_s = deadline_s - time.monotonic()
        if left_s < LEAST_S:
            yield part, [_failed(part, f"the {together_s:.0f} s of all parts were over")]
            continue
        folder = home / part.name
        folder.mkdir(parents=True)
        yield part, run_part(part, folder, scale=scale, within_s=min(part.within_s, left_s))


def run_part(part: Part, folder: Path, *, scale: float, within_s: float) -> list[Figure]:
    """Its figures; one that says why when there are none."""
    into, log = folder / "figures.json", folder / "said.log"
    mark = uuid.uuid4().hex
    words = (sys.executable, "-m", "bench.analytics", part.name, str(scale), str(folder), str(into))
    with (
        log.open("wb") as said,
        subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            env={**os.environ, MARK: mark},
        ) as process,
    ):
        try:
            code = process.wait(within_s)
        except subprocess.TimeoutExpired:
            return [_failed(part, f"not done within {within_s:.0f} s{_last_words(log)}")]
        finally:
            end(process, mark)
    try:
        figures = from_json(into.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, KeyError):
        return [_failed(part, f"ended with code {code}{_last_words(log)}")]
    return figures or [_failed(part, "it has printed no figures")]


def end(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a process, which may put away what it has started; what is left with its mark is
    killed."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_PATIENCE_S)
    for pid in marked(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def marked(mark: str) -> list[int]:
    """The processes that have inherited this mark, whoever their parents are by now."""
    variable = f"{MARK}={mark}".encode()
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if variable in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
    return found


def _failed(part: Part, reason: str) -> Figure:
    return Figure(part.what, None, note=reason)


def _last_words(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f": {lines[-1].strip()[:200]}" if lines else ""
