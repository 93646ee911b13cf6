"""Spark's classes are archived by the set-up; an archive that does not fit costs time alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from pipelines.lake import class_archive
from pipelines.lake.session import require_java

SPARK_SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


def started(*options: str) -> subprocess.CompletedProcess[str]:
    """A Java that Spark starts with its class path, and that ends at once."""
    named = ["--conf", f"spark.driver.extraJavaOptions={' '.join(options)}", "--version"]
    return subprocess.run(
        [str(SPARK_SUBMIT), *named],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAVA_HOME": str(require_java())},
    )


def test_sparks_java_takes_the_archive_that_the_set_up_made() -> None:
    options = class_archive.using(require_java())
    assert "-XX:SharedArchiveFile=" in options

    only_with_it = started("-Xshare:on", options)

    assert only_with_it.returncode == 0, only_with_it.stdout


@pytest.mark.parametrize("damage", ["zeros", "backwards"])
def test_a_java_goes_on_without_an_archive_that_is_damaged(damage: str, tmp_path: Path) -> None:
    found = class_archive.find(require_java())
    assert found is not None
    with found.open("rb") as whole:
        first = whole.read(1 << 20)
    archive = tmp_path / "spark-classes.jsa"
    archive.write_bytes({"zeros": bytes(5000), "backwards": first[::-1]}[damage])

    begun = started(f"-XX:SharedArchiveFile={archive} {class_archive.QUIETLY}")

    assert (begun.returncode, begun.stdout) == (0, "")


def test_an_archive_whose_end_is_missing_is_not_used(tmp_path: Path) -> None:
    whole = tmp_path / f"spark-classes-{class_archive.key_of(tmp_path)}-1000.jsa"
    whole.write_bytes(bytes(1000))
    assert class_archive.find(tmp_path, tmp_path) == whole

    whole.write_bytes(bytes(999))
    assert class_archive.find(tmp_path, tmp_path) is None


def test_another_java_has_an_archive_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "release").write_text('JAVA_VERSION="21.0.1"')
    assert class_archive.using(tmp_path) == ""
