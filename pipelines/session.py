"""The Spark session of the pipelines: one place for Java, jars and settings.

Place in the walk: made once per process, before the first cycle. Settings are those measured for
small appends on two cores (docs/adr/0003-gold-by-a-driver-loop.md): the snapshot of a Delta table
in one partition, one shuffle partition, a serial collector.

Invariant: nothing is downloaded at start; the two Delta jars lie where set-up put them. Delta's
transaction options are never set here: as session configuration they would stay, and swallow the
next write.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from engine.foundation.errors import ConfigError, LakeError
from engine.telemetry.tables import Column, ColumnType

JARS_FOLDER: Final = Path(
    os.environ.get("TIDEMARK_JARS") or Path(__file__).resolve().parent.parent / ".cache" / "jars"
)
JARS: Final = ("delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar")
JAVA_VERSION_MIN: Final = 17

LOOPBACK: Final = "127.0.0.1"
"""Where a driver listens whose executors are threads of its own process."""

ROOT: Final = Path(__file__).resolve().parent.parent
ROOMS_OF_EXECUTORS: Final = ("engine", "pipelines")

SETTINGS: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # A cycle has some hundred generated classes: with the default of 100 each was compiled in every
    # cycle.
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Values that travel between executors and their Python workers are parts of some ten megabytes.
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
    # Tables are addressed by path, so the warehouse stays empty; here, not in the user's folder.
    "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / f"tidemark-spark-{os.getuid()}"),
}

_RANGES: Final = StructType(
    [StructField("from_offset", LongType()), StructField("to_offset", LongType())]
)
_OWNED: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("queue_id", IntegerType()),
        StructField("committed", LongType()),
        StructField("pulled", LongType()),
    ]
)
_COUNTS: Final = StructType([StructField("table", StringType()), StructField("rows", LongType())])
_SPARK: Final[dict[ColumnType, DataType]] = {
    ColumnType.STRING: StringType(),
    ColumnType.INT: IntegerType(),
    ColumnType.LONG: LongType(),
    ColumnType.BOOLEAN: BooleanType(),
    ColumnType.TIMESTAMP: TimestampType(),
    ColumnType.DATE: DateType(),
    ColumnType.STRINGS: ArrayType(StringType()),
    ColumnType.RANGES: ArrayType(_RANGES),
    ColumnType.OWNED_QUEUES: ArrayType(_OWNED),
    ColumnType.TABLE_COUNTS: ArrayType(_COUNTS),
}


def open_session(
    master: str = "local[2]", *, address: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The session, started on first use. `address`: of this machine, at which a cluster's executors
    reach the driver; `conf`: further settings of Spark, which win.

    ConfigError without Java, or when a cluster is to be used and no address is told; LakeError
    without jars.
    """
    require_java()
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
    builder = SparkSession.builder.master(master).appName("tidemark")
    builder = builder.config("spark.jars", ",".join(str(jar) for jar in require_jars()))
    told = {"spark.driver.host": own, "spark.driver.bindAddress": own, **SETTINGS, **(conf or {})}
    for name, value in told.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if not is_local:
        session.sparkContext.addPyFile(str(_packed_rooms()))
    return session


def _packed_rooms() -> Path:
    """The rooms that executors need, as an archive: the code on a cluster is that of the driver."""
    archive = Path(tempfile.mkdtemp(prefix="tidemark-rooms-")) / "rooms.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for room in ROOMS_OF_EXECUTORS:
            for source in sorted((ROOT / room).rglob("*.py")):
                packed.write(source, source.relative_to(ROOT))
    return archive


def require_java() -> None:
    """Check that Spark will find a Java it accepts; raise ConfigError with what to do otherwise."""
    home = os.environ.get("JAVA_HOME", "")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None or not Path(program).exists():
        raise ConfigError(
            "JAVA_HOME",
            home,
            f"Spark needs a JDK {JAVA_VERSION_MIN} or newer and none is there: run `make setup`, "
            "or install one (Debian: `apt install openjdk-17-jre-headless`)",
        )
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(
            "JAVA_HOME", home or program, f"a Java that can be run ({error}): run `make setup`"
        ) from error
    found = re.search(r'version "(\d+)', done.stderr + done.stdout)
    if found is None or int(found[1]) < JAVA_VERSION_MIN:
        raise ConfigError(
            "JAVA_HOME",
            home or program,
            f"Spark needs a JDK {JAVA_VERSION_MIN} or newer, this one says "
            f"{(done.stderr + done.stdout).strip().splitlines()[:1]}: run `make setup`",
        )


def require_jars() -> tuple[Path, ...]:
    """The two Delta jars; LakeError with what to do when set-up has not brought them."""
    jars = tuple(JARS_FOLDER / name for name in JARS)
    missing = [jar.name for jar in jars if not jar.exists()]
    if missing:
        raise LakeError(f"{', '.join(missing)} not in {JARS_FOLDER}: run `make setup` once")
    return jars


def spark_type(kind: ColumnType) -> DataType:
    """Spark's type of a declared column type."""
    return _SPARK[kind]


def spark_schema(columns: Sequence[Column]) -> StructType:
    """The declared columns in Spark's types."""
    return StructType(
        [StructField(column.name, _SPARK[column.type], column.nullable) for column in columns]
    )


def spark_address(address: str) -> str:
    """The same address in Spark's words: its S3 file system is called s3a."""
    return "s3a://" + address.removeprefix("s3://") if address.startswith("s3://") else address
