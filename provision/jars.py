"""Fetches pinned jars for Delta, Apache RocketMQ and XXL-Job, and verifies their hashes.

Two jars of Delta are for Spark; Apache RocketMQ is for the interop tests and a demo that is played
on it, an earlier one for a test alone; executors of XXL-Job are for the interop tests.

They are fetched once by the Ivy that pyspark carries, run as a stand-alone program with a settings
file of one resolver, so that neither Maven nor a local Maven repository plays a part. Spark's own
`spark.jars.packages` would resolve again at every start and stops at half-filled repositories.

Invariant: a folder is used only when every jar named in the pin list is in it with the pinned
SHA-256. Jars are fetched aside, checked, and moved into place together: a broken download never
looks like a good one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

from provision.errors import ProvisionError
from provision.places import (
    CACHE,
    IS_CLONE,
    VENV,
    delta_jars,
    earlier_rocketmq_jars,
    rocketmq_jars,
    rocketmq_proxy_jars,
    xxl_job_jars,
)
from provision.shell import run, say

HERE = Path(__file__).resolve().parent
CLASSIFIER_NAMESPACE = "http://ant.apache.org/ivy/extra"


@dataclass(frozen=True)
class JarSet:
    """A pin list and the folder that must hold exactly what it names."""

    title: str
    pins: Path
    folder: Path


@dataclass(frozen=True)
class Jar:
    """One pinned jar: Maven coordinates and the SHA-256 of its bytes."""

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str

    @property
    def file_name(self) -> str:
        suffix = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{suffix}.jar"


DELTA = JarSet("the Delta jars for Spark", HERE / "delta-jars.txt", delta_jars())
ROCKETMQ = JarSet("the RocketMQ jars", HERE / "rocketmq-jars.txt", rocketmq_jars())
EARLIER_ROCKETMQ = JarSet(
    "the jars of an earlier RocketMQ",
    HERE / "earlier-rocketmq-jars.txt",
    earlier_rocketmq_jars(),
)
ROCKETMQ_PROXY = JarSet(
    "the jars of RocketMQ's proxy", HERE / "rocketmq-proxy-jars.txt", rocketmq_proxy_jars()
)
XXL_JOB = {
    version: JarSet(
        f"the jars of XXL-Job {version}",
        HERE / f"xxl-job-{version}-jars.txt",
        xxl_job_jars(version),
    )
    for version in ("2.4.2", "3.3.2")
}
"""Before and after the change of words in its answers."""


def ensure(jar_set: JarSet, *, java_home: Path) -> None:
    """Make the folder hold the pinned jars; fetch only when one is missing or wrong."""
    jars = read_pins(jar_set.pins)
    if not faults(jars, jar_set.folder):
        return
    say(f"fetching {jar_set.title} ({len(jars)} files) into {jar_set.folder}")
    aside = jar_set.folder.with_name(jar_set.folder.name + ".partial")
    shutil.rmtree(aside, ignore_errors=True)
    fetch(jars, aside, java_home=java_home)
    if wrong := faults(jars, aside):
        raise ProvisionError(f"{jar_set.title} are not the pinned ones: {'; '.join(wrong)}")
    shutil.rmtree(jar_set.folder, ignore_errors=True)
    aside.rename(jar_set.folder)


def read_pins(path: Path) -> list[Jar]:
    """Read a pin list: `sha256  group:artifact:version[:classifier]` a line, `#` for comments."""
    jars = []
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            sha256, coordinates = line.split()
            group, artifact, version, *classifier = coordinates.split(":")
            jars.append(Jar(group, artifact, version, "".join(classifier), sha256))
    return jars


def faults_of(jar_set: JarSet) -> list[str]:
    """What keeps the folder of a set from holding its pinned jars."""
    return faults(read_pins(jar_set.pins), jar_set.folder)


def faults(jars: list[Jar], folder: Path) -> list[str]:
    """What keeps `folder` from holding the pinned jars, one phrase each; empty when all is well."""
    found = []
    for jar in jars:
        path = folder / jar.file_name
        if not path.is_file():
            found.append(f"{jar.file_name} is missing")
        elif (actual := hashlib.sha256(path.read_bytes()).hexdigest()) != jar.sha256:
            found.append(f"{jar.file_name} has SHA-256 {actual}, pinned is {jar.sha256}")
    return found


def fetch(jars: list[Jar], into: Path, *, java_home: Path) -> None:
    """Fetch the jars with pyspark's Ivy, all in one run; the files land in `into`."""
    into.mkdir(parents=True)
    request = into / "ivy.xml"
    request.write_text(ivy_request(jars))
    settings = Path(os.environ.get("TIDEMARK_IVYSETTINGS") or HERE / "ivysettings.xml")
    if not settings.is_file():
        raise ProvisionError(f"TIDEMARK_IVYSETTINGS names {settings}, which is not a file.")
    command: list[str | Path] = [java_home / "bin" / "java", "-cp", ivy_jar()]
    command += ["org.apache.ivy.Main", "-settings", settings, "-cache", CACHE / "ivy"]
    command += ["-ivy", request, "-types", "jar", "-confs", "default"]
    pattern = f"{into}/[artifact]-[revision](-[classifier]).[ext]"
    run(
        [*command, "-retrieve", pattern],
        failure="Ivy could not fetch the jars; behind a mirror, name your own ivysettings.xml in "
        "TIDEMARK_IVYSETTINGS",
    )
    request.unlink()


def ivy_jar() -> Path:
    """The Ivy that the installed pyspark carries."""
    if IS_CLONE:  # The Python that runs this may be another than that of .venv.
        found = sorted(VENV.glob("lib/python3*/site-packages/pyspark/jars/ivy-*.jar"))
    else:
        pyspark = find_spec("pyspark")
        place = Path(pyspark.origin).parent if pyspark and pyspark.origin else Path()
        found = sorted(place.glob("jars/ivy-*.jar"))
    if len(found) != 1:
        again = "remove .venv, run make again" if IS_CLONE else "install pyspark again"
        raise ProvisionError(f"expected one ivy-*.jar in pyspark, found {len(found)}: {again}.")
    return found[0]


def ivy_request(jars: list[Jar]) -> str:
    """An ivy.xml asking for exactly these jars: nothing transitive, the pin list is the closure."""
    ElementTree.register_namespace("m", CLASSIFIER_NAMESPACE)
    module = ElementTree.Element("ivy-module", version="2.0")
    ElementTree.SubElement(module, "info", organisation="tidemark", module="jars")
    ElementTree.SubElement(ElementTree.SubElement(module, "configurations"), "conf", name="default")
    dependencies = ElementTree.SubElement(module, "dependencies")
    alone = {"transitive": "false", "conf": "default->*"}
    asked: dict[tuple[str, str, str], ElementTree.Element] = {}
    for jar in jars:
        key = (jar.group, jar.artifact, jar.version)
        if key not in asked:
            wanted = {"org": jar.group, "name": jar.artifact, "rev": jar.version, **alone}
            asked[key] = ElementTree.SubElement(dependencies, "dependency", wanted)
        artifact = {"name": jar.artifact, "type": "jar", "ext": "jar"}
        if jar.classifier:
            artifact[f"{{{CLASSIFIER_NAMESPACE}}}classifier"] = jar.classifier
        ElementTree.SubElement(asked[key], "artifact", artifact)
    return ElementTree.tostring(module, encoding="unicode")
