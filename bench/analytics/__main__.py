"""Runs one part of the analytics benchmark in this process, for `bench.analytics.parts`.

python -m bench.analytics NAME SCALE FOLDER INTO
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from pathlib import Path
from types import FrameType

from bench.analytics.figures import as_json
from bench.analytics.parts import BY_NAME


def main(name: str, scale: str, folder: str, into: str) -> None:
    """Measure, and write the figures into a file."""
    signal.signal(signal.SIGTERM, _end)  # What is started is put away on the way out.
    measure = import_module(f"bench.analytics.{BY_NAME[name].module}").measure
    Path(into).write_text(as_json(measure(Path(folder), float(scale))), encoding="utf-8")


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    sys.exit(128 + number)


if __name__ == "__main__":
    main(*sys.argv[1:])
