"""Starts Spark once to build the Java class archive that speeds up later starts.

Place in the walk: `python -m pipelines.lake.archived_start`, the last step of the set-up. It
writes, reads and joins a small Delta table, so that what every session loads is among the classes.

Invariant: the archive appears whole or not at all. Absent on purpose: a choice where it lies
(`class_archive`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.lake import class_archive
from pipelines.lake.session import end_own_java, open_session, require_java

WRITTEN_WITHIN_S = 180
"""Java takes some 10 s to write 190 MB; on a machine that does much else it takes a minute."""


def make() -> Path:
    """The archive for the Java and the Spark that are here, made when it is not there. Raises
    ConfigError without a Java, and OSError when there is no room.
    """
    home = require_java()
    if (archive := class_archive.find(home)) is not None:
        return archive
    unfinished = class_archive.FOLDER / "spark-classes.new"
    unfinished.unlink(missing_ok=True)
    session = open_session(java_options=class_archive.making(unfinished))
    with tempfile.TemporaryDirectory() as folder:
        _load_what_sessions_load(session, f"{folder}/table")
    end_own_java(within_s=WRITTEN_WITHIN_S)
    return class_archive.adopt(unfinished, home)


def _load_what_sessions_load(session: SparkSession, table: str) -> None:
    rows = session.createDataFrame([(1, "a"), (2, "b")], ["number", "letter"])
    for mode in ("overwrite", "append"):
        rows.write.format("delta").mode(mode).save(table)
    written = session.read.format("delta").load(table)
    written.join(rows.select("number"), "number").createTempView("written")
    session.sql("SELECT letter, count(*), max(number) FROM written GROUP BY 1").collect()
    written.toPandas()


if __name__ == "__main__":
    make()
