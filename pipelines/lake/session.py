"""Creates the pipelines' Spark session with the required Java, jars and settings.

Place in the walk: made once per process, before the first cycle. Settings are those measured for
small appends on two cores (docs/adr/0003-gold-by-a-driver-loop.md): the snapshot of a Delta table
in one partition, one shuffle partition, a serial collector.

Invariant: nothing is downloaded at start; the two Delta jars lie where set-up put them. Delta's
transaction options are never set here: as session configuration they would stay, and swallow the
next write.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from engine.foundation.errors import ConfigError, LakeError
from pipelines.lake import class_archive
from provision import java
from provision.commands import bring_spark
from provision.jars import DELTA, read_pins

JAVA_VERSION_MIN: Final = 17

_OF_A_JAVA_THAT_ENDED: Final = ("Exception while sending command.",)
"""What py4j logs when it finds nobody at the other end."""
LOOPBACK: Final = "127.0.0.1"
"""Where a driver listens whose executors are threads of its own process."""

ROOT: Final = Path(__file__).resolve().parents[2]
ROOMS_OF_EXECUTORS: Final = ("engine", "pipelines", "expectations")

SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
    # Java only hands out work: the second compiler took 2 of the 50 CPU seconds in which a million
    # keys are judged, and as much of each short run.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    # What is moved is compressed already (`pipelines.cycles.buckets`).
    "spark.shuffle.compress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # A cycle has some hundred generated classes: with the default of 100 each was compiled in every
    # cycle.
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Values that travel between executors and their Python workers are parts of some ten megabytes.
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
    # Arrow's own allocators give memory back at once and take it anew: a third of the CPU time of a
    # large cycle was the kernel's, for pages.
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
    # For the same reason the columns of a bucket come from memory that was used before, up to 256
    # MiB of which stay with a worker, and NumPy asks for no huge pages, which are cleared anew.
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "spark.executorEnv.NUMPY_MADVISE_HUGEPAGE": "0",
    # Tables are addressed by path, so the warehouse stays empty; here, not in the user's folder.
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / f"tidemark-spark-{os.getuid()}"),
}

SQL: Final = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.shuffle.compress": "true",
}
"""Settings of a session whose Java does work of its own: queries of a user."""

JAVA_END_S: Final = 10
"""Spark's Java has ended by then, once nobody needs it."""


def open_session(
    master: str = "local[2]",
    *,
    address: str | None = None,
    conf: Mapping[str, str] | None = None,
    java_options: str | None = None,
) -> SparkSession:
    """The session, started on first use. `address`: of this machine, at which a cluster's executors
    reach the driver; `conf`: further settings of Spark, which win; `java_options`: in place of
    those that have Java use the archive of Spark's classes.

    ConfigError without Java, or when a cluster is to be used and no address is given; LakeError
    without jars.
    """
    java_home = require_java()
    is_local = master.startswith("local")
    if address is None and not is_local:
        raise ConfigError(
            "address",
            address,
            f"the executors of {master} call this process back: name an address of this machine "
            "that they can reach (`--address HOST`)",
        )
    own = address or LOOPBACK
    os.environ.setdefault("SPARK_LOCAL_IP", own)  # Else the machine's name must resolve.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Executors judge with our packages.
    jars = ",".join(str(jar) for jar in require_jars())
    settings = {
        "spark.jars": jars,
        "spark.driver.host": own,
        "spark.driver.bindAddress": own,
        **SETTINGS,
        **(conf or {}),
    }
    archived = class_archive.using(java_home) if java_options is None else java_options
    settings["spark.driver.extraJavaOptions"] += f" {archived}"
    _begin_java({**settings, "spark.jars": jars})  # Delta is there whatever else is named.
    builder = SparkSession.builder.master(master).appName("tidemark")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if not is_local:
        session.sparkContext.addPyFile(str(_packed_rooms()))
    return session


def _begin_java(settings: Mapping[str, str]) -> None:
    """Start Spark's Java in a session of its own: a signal to the process group of a run ends the
    run, and the run ends its Java. (It ends by itself when its standard input does, which is how it
    hears that a run was killed.)
    """
    if getattr(SparkContext, "_gateway", None) is not None:
        return
    conf = SparkConf()
    for name, value in settings.items():
        conf.set(name, value)
    launch: Any = launch_gateway  # PySpark declares no types here.
    gateway = launch(conf, {"start_new_session": True})
    atexit.register(end_java, gateway.proc)
    # No context yet: settings of the session are the builder's.
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001


def end_java(process: subprocess.Popen[bytes], *, within_s: float = JAVA_END_S) -> None:
    """When this process ends its Java has ended, without a word."""
    context = SparkContext._active_spark_context  # noqa: SLF001 - PySpark offers no other way
    if context is not None:
        # Its thread, which listens to Java, would show the end of that as an error.
        setattr(context._accumulatorServer, "handle_error", _say_nothing)  # noqa: B010, SLF001
        with suppress(Py4JError, OSError):  # A Java that no longer answers says nothing either.
            context.setLogLevel("OFF")  # Or each task that is under way fails with a trace.
    # Objects of Java that are collected from now on have nobody to be given back to.
    logging.getLogger().addFilter(_is_not_of_a_java_that_ended)
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_own_java(*, within_s: float = JAVA_END_S) -> None:
    """As `end_java`, of the Java that this process has started, if any."""
    gateway = SparkContext._gateway  # noqa: SLF001
    if gateway is not None:
        end_java(gateway.proc, within_s=within_s)


def end_now() -> NoReturn:
    """End this process and its Java, whatever they are doing, without a word: for a signal."""
    # The connection of the thread that was interrupted may wait for an answer.
    ending = threading.Thread(target=end_own_java)
    ending.start()
    ending.join()
    os._exit(0)


def _is_not_of_a_java_that_ended(record: logging.LogRecord) -> bool:
    return record.msg not in _OF_A_JAVA_THAT_ENDED


def _say_nothing(_request: object, _address: object) -> None:
    """In place of a traceback."""


def _packed_rooms() -> Path:
    """The rooms that executors need, as an archive: the code on a cluster is that of the driver."""
    archive = Path(tempfile.mkdtemp(prefix="tidemark-rooms-")) / "rooms.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for room in ROOMS_OF_EXECUTORS:
            for source in sorted((ROOT / room).rglob("*.py")):
                packed.write(source, source.relative_to(ROOT))
    return archive


def require_java() -> Path:
    """The home of the Java that Spark will start, which it accepts; ConfigError with what to do
    otherwise.
    """
    home = os.environ.get("JAVA_HOME", "")
    if not home and shutil.which("java") is None and (found := java.find(with_compiler=False)):
        home = os.environ["JAVA_HOME"] = str(found)
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None or not Path(program).exists():
        raise ConfigError("JAVA_HOME", home, java.missing(with_compiler=False))
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(
            "JAVA_HOME", home or program, f"a Java that can be run ({error})"
        ) from error
    said = done.stderr + done.stdout
    release = re.search(r'version "(\d+)', said)
    if release is None or int(release[1]) < JAVA_VERSION_MIN:
        raise ConfigError(
            "JAVA_HOME",
            home or program,
            f"Spark needs a JDK {JAVA_VERSION_MIN} or newer, this one says "
            f"{said.strip().splitlines()[:1]}",
        )
    return Path(home).resolve() if home else Path(program).resolve().parent.parent


def require_jars() -> tuple[Path, ...]:
    """The two Delta jars, fetched when they are not here. Raises LakeError when a folder that
    TIDEMARK_JARS names lacks one, and ConfigError when they cannot be fetched.
    """
    jars = tuple(DELTA.folder / jar.file_name for jar in read_pins(DELTA.pins))
    missing = [jar.name for jar in jars if not jar.exists()]
    if missing and os.environ.get("TIDEMARK_JARS"):
        raise LakeError(f"{', '.join(missing)} not in {DELTA.folder}, which TIDEMARK_JARS names")
    if missing:
        bring_spark()
    return jars
