"""Manages the archive of parsed Spark classes that speeds up Java start-up.

Place in the walk: under `session`, which names the archive to every Java it starts;
`archived_start` makes it at the end of the set-up. With it a start of Spark takes 5 s less, and
two thirds of the CPU.

Invariant: an archive that does not fit (another Java, other jars, damage) costs that gain and
nothing else: Java compares it with itself and with its jars, and goes on without. What Java does
not find out is that the end of the file is missing: the file's name says how long it is. Absent on
purpose: the classes of Delta, which Spark loads by a loader of its own.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

import pyspark

from provision.places import CACHE, IS_CLONE, VENV

FOLDER: Final = VENV if IS_CLONE else CACHE
PATTERN: Final = "spark-classes-*.jsa"
QUIETLY: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""Java would remark on standard output that an archive does not fit."""


def key_of(java_home: Path) -> str:
    """The same for all starts of this Spark by this Java."""
    release = java_home / "release"
    java = release.read_bytes() if release.exists() else str(java_home).encode()
    spark = f"{pyspark.__version__} {Path(pyspark.__file__).parent}".encode()
    return hashlib.sha256(java + spark).hexdigest()[:16]


def find(java_home: Path, folder: Path = FOLDER) -> Path | None:
    """The archive for this Java and this Spark, whole; None when it is not there."""
    for archive in folder.glob(f"spark-classes-{key_of(java_home)}-*.jsa"):
        if archive.stem.endswith(f"-{archive.stat().st_size}"):
            return archive
    return None


def adopt(written: Path, java_home: Path) -> Path:
    """Have later starts find the archive that a Java wrote, in place of earlier ones."""
    for outdated in FOLDER.glob(PATTERN):
        outdated.unlink(missing_ok=True)
    size = written.stat().st_size
    return written.rename(FOLDER / f"spark-classes-{key_of(java_home)}-{size}.jsa")


def using(java_home: Path) -> str:
    """The options of a Java that uses the archive; none when it is not there."""
    archive = find(java_home)
    return "" if archive is None else f"-XX:SharedArchiveFile={archive} {QUIETLY}"


def making(archive: Path) -> str:
    """The options of a Java that writes the archive when it ends."""
    return f"-XX:ArchiveClassesAtExit={archive} {QUIETLY}"
