"""Pinned jars: what is there is checked byte for byte, and a broken folder is never taken for a
good one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from xml.etree import ElementTree

from provision.jars import DELTA, ROCKETMQ, Jar, faults, ivy_request, read_pins

JAR = Jar("io.example", "thing", "1.2", "linux-x86_64", hashlib.sha256(b"good").hexdigest())


def test_a_pin_line_names_hash_coordinates_and_classifier(tmp_path: Path) -> None:
    pins = tmp_path / "pins.txt"
    pins.write_text(
        "# comment\n"
        f"{JAR.sha256}  io.example:thing:1.2:linux-x86_64\n"
        f"{'0' * 64}  io.example:other:3\n"
    )
    assert read_pins(pins) == [JAR, Jar("io.example", "other", "3", "", "0" * 64)]
    assert [jar.file_name for jar in read_pins(pins)] == [
        "thing-1.2-linux-x86_64.jar",
        "other-3.jar",
    ]


def test_a_folder_with_the_pinned_bytes_has_no_fault(tmp_path: Path) -> None:
    (tmp_path / JAR.file_name).write_bytes(b"good")
    assert faults([JAR], tmp_path) == []


def test_a_missing_and_a_changed_jar_are_named_with_both_hashes(tmp_path: Path) -> None:
    assert faults([JAR], tmp_path) == [f"{JAR.file_name} is missing"]
    (tmp_path / JAR.file_name).write_bytes(b"torn")
    actual = hashlib.sha256(b"torn").hexdigest()
    assert faults([JAR], tmp_path) == [
        f"{JAR.file_name} has SHA-256 {actual}, pinned is {JAR.sha256}"
    ]


def test_ivy_is_asked_for_the_pinned_jars_and_nothing_transitive() -> None:
    plain = Jar("io.example", "thing", "1.2", "", "0" * 64)
    request = ElementTree.fromstring(ivy_request([plain, JAR]))
    dependencies = request.findall("dependencies/dependency")
    assert [dependency.attrib["rev"] for dependency in dependencies] == ["1.2"]
    assert {dependency.attrib["transitive"] for dependency in dependencies} == {"false"}
    assert [sorted(artifact.attrib.values()) for artifact in dependencies[0]] == [
        ["jar", "jar", "thing"],
        ["jar", "jar", "linux-x86_64", "thing"],
    ]


def test_the_pin_lists_name_each_file_once_with_a_whole_hash() -> None:
    for jar_set, least in ((DELTA, 2), (ROCKETMQ, 100)):
        pinned = read_pins(jar_set.pins)
        assert len(pinned) >= least
        assert len({jar.file_name for jar in pinned}) == len(pinned)
        assert {len(jar.sha256) for jar in pinned} == {64}


def test_the_delta_jars_fit_the_pinned_python_package() -> None:
    project = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert {jar.version for jar in read_pins(DELTA.pins)} == {"4.4.0"}
    assert '"delta-spark==4.4.0"' in project
