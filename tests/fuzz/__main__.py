"""`make fuzz`: atheris against every target, the seconds shared out; ends with 1 at a defect.

    python -m tests.fuzz [--seconds N] [--only NAME ...]

Inputs that brought new coverage are kept in .cache/fuzz/<target>, and the next run begins with
them, as is one that broke something; it becomes a sample of its target once the defect is mended.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".cache" / "fuzz"
INPUT_BYTES_MAX = 4096
MEMORY_MIB_MAX = 768


def fuzz_one(name: str, seconds: int) -> None:
    """Never returns: libFuzzer ends the process, with 0 when the time was up."""
    import atheris  # noqa: PLC0415 - only here, for it is not installed everywhere

    with atheris.instrument_imports(include=["engine", "pipelines.scheduler"]):
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - instrumented while imported

    (target,) = [each for each in TARGETS if each.name == name]
    folder = KEPT / name.replace(" ", "-").replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    for number, sample in enumerate(target.samples):
        (folder / f"sample-{number}").write_bytes(sample)

    def one_input(data: bytes) -> None:
        try:
            target.run(data)
        except target.allowed:
            return

    limits = [f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES_MAX}", "-timeout=5"]
    limits += [
        f"-rss_limit_mb={MEMORY_MIB_MAX}",
        f"-artifact_prefix={folder}/broke-",
    ]
    atheris.Setup([sys.argv[0], *limits, str(folder)], one_input)
    atheris.Fuzz()


def main() -> int:
    """Each target in a process of its own; the names of those that broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--only", nargs="+", help="names of targets")
    parser.add_argument("--one", help="fuzz this target in this process")
    options = parser.parse_args()
    if options.one:
        fuzz_one(options.one, options.seconds)
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - not before fuzz_one instruments it

    names = options.only or [each.name for each in TARGETS]
    share = max(2, options.seconds // len(names))
    broken = []
    for name in names:
        command = [sys.executable, "-m", "tests.fuzz", "--one", name, "--seconds", str(share)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            broken.append(name)
            sys.stdout.write(f"{name} BROKE\n{done.stdout[-2000:]}{done.stderr[-3000:]}\n")
        else:
            runs = [line for line in done.stderr.splitlines() if line.startswith("Done ")]
            sys.stdout.write(f"{name}: {' '.join(runs) or 'done'}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
