"""Row C10: the settings that a store keeps are served by the next start, or it reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.broker.rocketmq_settings import ROOT, Start, read_start, rocketmq_values
from engine.foundation.config_layers import from_flags
from engine.foundation.errors import ConfigError, CorruptRecord, StorageError
from engine.foundation.observing import LifecycleEvent
from engine.runtime import system_runtime
from engine.store.stored_settings import KeptSettings
from engine.store.table_file import TableFile
from tests.failing_disk import FailingDisk
from tests.store_support import Listener

OWN, OTHER = "0a" * 8, "0b" * 8
PROMISED = {"fileReservedTime": "240", "maxMessageSize": "12345"}


class Kept:
    """The settings of one store, the disk below them, and what was reported."""

    def __init__(self, folder: Path, store_id: str = OWN) -> None:
        self.disk, self.listener = FailingDisk(), Listener()
        self.disk.skip_syncs = True
        self.root, self.store_id = folder / store_id, store_id
        self.path = self.root / "config" / "broker.properties"
        self.copy = self.path.with_name("broker.properties.bak")
        self.path.parent.mkdir(parents=True)
        self.runtime = replace(system_runtime(), disk=self.disk)
        self.file = KeptSettings(self.runtime, str(self.path), store_id, self.listener)

    async def change(self, **settings: str) -> None:
        """As the first change of a store whose tables are there."""
        if not self.path.exists():
            table = TableFile(self.runtime, f"{self.path.parent}/topics.json", self.store_id)
            await table.write({"topicConfigTable": {}})
        await self.file.change(settings)

    def read(self) -> Start:
        flags = from_flags({ROOT: str(self.root)})
        return read_start(self.disk, None, environment={}, flags=flags)

    async def start(self) -> tuple[tuple[int, int], str]:
        """What a start serves, and the kind of what it reports."""
        found = self.read()
        origin = found.origin.found
        await self.file.settle(origin)
        return served(found), "" if origin is None else origin.kind

    def lines(self) -> list[str]:
        return [one.detail or "" for one in self.listener.facts if isinstance(one, LifecycleEvent)]


def served(start: Start) -> tuple[int, int]:
    """Hours that messages are kept, and bytes that they may have."""
    values = rocketmq_values(start.config)
    return int(values["fileReservedTime"]), int(values["maxMessageSize"])


ALL, DEFAULTS = (240, 12345), (72, 4194304)


async def test_what_was_kept_is_served_and_a_sound_file_reports_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    assert await kept.start() == (DEFAULTS, ""), "nothing was ever changed"
    assert not kept.path.exists()
    await kept.change(**PROMISED)
    before = kept.path.read_bytes()
    assert kept.copy.read_bytes() == before, "from the first change on there are two"
    for _ in range(2):
        assert await kept.start() == (ALL, "")
    assert kept.path.read_bytes() == before
    assert before.startswith(b"fileReservedTime=240\nmaxMessageSize=12345\n\n# sealed: ")


async def test_a_file_that_is_missing_is_made_again_from_its_copy_and_reported(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path)
    await kept.change(**PROMISED)
    kept.path.unlink()
    assert await kept.start() == (ALL, "DAMAGED_FILE")
    assert f"{kept.path} is missing; read {kept.copy} instead" in kept.lines()[0]
    assert await kept.start() == (ALL, "")


async def test_wherever_the_file_is_cut_off_everything_is_served_and_reported(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path)
    await kept.change(**PROMISED)
    whole = kept.path.read_bytes()
    for length in range(len(whole)):
        for zeros in (0, len(whole) - length):
            kept.path.write_bytes(whole[:length] + bytes(zeros))
            assert await kept.start() == (ALL, "DAMAGED_FILE"), f"{length} bytes, {zeros} zeros"
            assert kept.path.with_name("broker.properties.damaged").exists()
            assert await kept.start() == (ALL, ""), "it is reported once"


async def test_whichever_bit_is_flipped_nothing_is_lost_without_a_word(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.change(**PROMISED)
    whole = kept.path.read_bytes()
    for at in range(len(whole) * 8):
        content = bytearray(whole)
        content[at // 8] ^= 1 << at % 8
        kept.path.write_bytes(content)
        found = kept.read()
        assert found.origin.found is not None, f"bit {at}: nothing is reported"
        assert not set(served(found)) & set(DEFAULTS), f"bit {at} has hidden a setting"


async def test_a_damaged_copy_harms_nothing_and_is_made_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.change(**PROMISED)
    whole = kept.path.read_bytes()
    for content in (b"", whole[:30], b"\xff" * 40):
        kept.copy.write_bytes(content)
        assert await kept.start() == (ALL, "")
        assert kept.copy.read_bytes() == whole
    kept.copy.unlink()
    assert await kept.start() == (ALL, "")
    assert kept.copy.read_bytes() == whole


async def test_the_settings_of_another_store_are_not_taken(tmp_path: Path) -> None:
    kept, other = Kept(tmp_path), Kept(tmp_path, OTHER)
    await kept.change(**PROMISED)
    await other.change(fileReservedTime="1")
    kept.path.write_bytes(other.path.read_bytes())
    assert await kept.start() == (ALL, "DAMAGED_FILE")
    assert f"of another store, {OTHER}; this one is {OWN}" in kept.lines()[0]


async def test_an_older_file_beside_a_newer_copy_was_swapped_with_it(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.change(fileReservedTime="1")
    older = kept.path.read_bytes()
    await kept.change(**PROMISED)
    kept.path.write_bytes(older)
    assert await kept.start() == (ALL, "DAMAGED_FILE")
    assert f"{kept.path} is older than {kept.copy}" in kept.lines()[0]


@pytest.mark.parametrize("copy", ["fileReservedTime=100\n", None], ids=["with .bak", "without"])
async def test_a_file_of_an_earlier_version_opens_without_a_word_and_is_sealed(
    tmp_path: Path, copy: str | None
) -> None:
    kept = Kept(tmp_path)
    text = "# hours\nfileReservedTime=240\nmaxMessageSize=12345"
    kept.path.write_text(text)
    if copy is not None:
        kept.copy.write_text(copy)
    assert await kept.start() == (ALL, "")
    assert kept.path.read_text().startswith(f"{text}\n\n# sealed: written=")
    kept.path.unlink()
    assert await kept.start() == (ALL, "DAMAGED_FILE"), "from the first start on it is guarded"


async def test_a_file_edited_by_hand_is_taken_reported_once_and_kept_as_it_is(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path)
    await kept.change(**PROMISED)
    text = kept.path.read_text()
    for edited, expected in (
        (text.replace("=240", "=480"), (480, 12345)),
        (f"# ours\n{text}", ALL),
        (f"{text}fileReservedTime=96\n", (96, 12345)),
        (text.replace("maxMessageSize=12345\n", ""), (240, 4194304)),
        (text.replace("\n", "\r\n"), ALL),
        ("fileReservedTime=5\n", (5, 4194304)),
    ):
        kept.path.write_text(edited, newline="")
        assert await kept.start() == (expected, "CHANGED_FILE"), edited
        assert await kept.start() == (expected, ""), "it is reported once"
        assert edited.partition("# sealed")[0].strip() in kept.path.read_bytes().decode()
        assert kept.path.read_text().count("# sealed") == 1


@pytest.mark.parametrize("line", ["fileReservedTime=long", "fileReservedUime=240", "a=\\u12"])
async def test_an_edit_that_no_broker_understands_is_put_aside(tmp_path: Path, line: str) -> None:
    kept = Kept(tmp_path)
    await kept.change(**PROMISED)
    kept.path.write_text(kept.path.read_text().replace("fileReservedTime=240", line))
    assert await kept.start() == (ALL, "DAMAGED_FILE")
    assert f"read {kept.copy} instead; kept it as {kept.path}.damaged" in kept.lines()[0]
    assert line in (kept.path.with_name("broker.properties.damaged")).read_text()


async def test_a_key_that_no_broker_knows_any_more_does_not_stand_in_the_way(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path)
    kept.path.write_text("keyOfOld=1\nfileReservedTime=240\n")
    assert (await kept.start())[1] == ""
    kept.path.write_text(kept.path.read_text().replace("=240", "=480"))
    assert await kept.start() == ((480, 4194304), "CHANGED_FILE")


def test_a_wrong_value_without_a_copy_is_refused_with_its_line(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.path.write_text("# ours\nfileReservedTime=long\n")
    with pytest.raises(ConfigError, match=r"broker\.properties, line 2"):
        kept.read()


async def test_without_a_readable_version_both_are_named(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.change(**PROMISED)
    kept.path.write_bytes(b"\0" * 50)
    kept.copy.write_bytes(b"")
    with pytest.raises(CorruptRecord, match=r"properties is empty; .*\.bak is empty: remove the"):
        kept.read()


async def test_a_change_goes_on_from_the_copy_when_the_file_was_lost_meanwhile(
    tmp_path: Path,
) -> None:
    kept = Kept(tmp_path)
    await kept.change(fileReservedTime="240")
    kept.path.unlink()
    await kept.change(maxMessageSize="12345")
    assert "is missing; read" in kept.lines()[0]
    assert await kept.start() == (ALL, "")


async def test_a_change_that_fails_has_changed_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.change(**PROMISED)
    kept.disk.fail_syncs = ".properties.tmp"
    with pytest.raises(StorageError):
        await kept.change(fileReservedTime="1")
    kept.disk.fail_syncs = False
    assert await kept.start() == (ALL, "")


async def test_a_change_whose_copy_finds_no_room_is_kept_all_the_same(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    await kept.change(fileReservedTime="1")
    kept.disk.fail_syncs = ".properties.bak.tmp"
    await kept.change(**PROMISED)
    assert kept.copy.read_bytes() != kept.path.read_bytes()
    kept.disk.fail_syncs = False
    assert await kept.start() == (ALL, "")
    assert kept.copy.read_bytes() == kept.path.read_bytes(), "there is room now"
