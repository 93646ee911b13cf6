"""The table of damaged files: every file of a store, every damage, both kinds of stop.

`python -m tests.integration.broker.damaged_files > docs/damaged-files.md` writes it down; a test
holds each row against a broker, and the document against these rows.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from tests.integration.broker.worn_store import DAMAGES, FIELDS


class Outcome(Enum):
    """What a start comes to. Reported means: a line on the terminal, and a row in `lifecycle`."""

    SAME = "starts with everything"
    MENDED = "starts with everything; reported"
    LESS = "starts with less; reported"
    FALLBACK = "starts with the file as it is, or with the version before it; reported"
    ABSENT = "—"


@dataclass(frozen=True, slots=True)
class Kept:
    """One kind of file: where it is, and what is done about it."""

    name: str
    pattern: str
    about: str
    outcomes: dict[str, tuple[Outcome, Outcome]]
    """Damage → after a clean stop, after an unclean one."""
    folder: str = ""
    """All files in it are of this kind; else those that fit the pattern are."""

    @property
    def kind(self) -> str:
        """What all files of the kind fit."""
        return f"{self.folder}/*" if self.folder else self.pattern


assert not any("not noticed" in each.value for each in Outcome), "having less unseen is no outcome"
SAME, MENDED, LESS, FALLBACK, ABSENT = Outcome
ALWAYS = {"missing", "empty", "truncated", "one bit flipped", "of another store"}


def every(clean: Outcome, unclean: Outcome) -> dict[str, tuple[Outcome, Outcome]]:
    """The same for every damage that any file can have."""
    return dict.fromkeys((name for name in DAMAGES if name in ALWAYS), (clean, unclean))


LOG = (
    "Below the synced position nothing of the log is cut and no file of it removed: what cannot be "
    "read is a hole, reported as LOG_HOLE with the messages that are lost; pulls pass over it. "
    "After a clean stop damage is found, and reported, when it is read, or when the queues are "
    "compared with the log soon after the start. The checkpoint says where the log begins, so the "
    "oldest files are missed like any other."
)
QUEUES = (
    "Built from the log alone. After a clean stop the checkpoint knows where they ended; after an "
    "unclean one what is new in the log is read again anyhow, and of what is older a note beside "
    "them says where each began and ended. Soon after the start, beside the "
    "loop, every entry is compared with the record of its message: one that differs from the "
    "log is written again, and reported. Until then it may hide its message from a consumer, one "
    "with a wrong tags hash from those that filter: the line names the entries."
)
INDEX = (
    "Built from the log alone. Sums show what a file was when it was flushed: header and slots of "
    "the newest file are looked at by the start, everything else before a question "
    "believes it and, beside the loop, soon after the start. A header is put right from the sums, "
    "slots from the entries; with damaged entries the file goes, with those behind it, and their "
    "keys are put again from the log: by the start, or beside the work of a broker that runs "
    "already, which reports it before the first answer that lacks them. A few entries of each file "
    "are followed to their records, which shows a file of another store. Files that RocketMQ has "
    "written have no sums: they are taken as they are, and get theirs at the first start."
)
SUMS = (
    "What the files of the index were when they were flushed, in two versions. Without its sums a "
    "file of the index is taken as it is, and they are made anew."
)
ENDS = (
    "Where the queues began and ended, for a start that does not read the whole log. Without it "
    "such a start reads all of it, which takes time, and reports so."
)
DELAY_LOGS = (
    "Made from the log alone. timerWheel.json says how many entries they had. Soon after the "
    "start, beside the loop, every entry is held against its checksum, and what leads to it is "
    "held against the entries. Where something is wrong all of them are made again."
)
CHECKPOINT = (
    "Costs time, never a message: without it the log is read from its start, and everything in it "
    "counts as synced: what else is damaged is a hole, as ever. One that is ahead of the log is "
    "another store's, or the log has lost its end."
)
ABORT = (
    "There while a broker runs, so that its presence at a start says that the last stop was not "
    "clean. Its content does not matter. Without it the start takes the stop for a clean one, and "
    "trusts queues and index that end where the log does."
)
TABLE = (
    "Carries its checksum, when it was written and for which store. Damaged, missing or of another "
    "store: the version before it is read (`.bak`), the damaged file is kept as `.damaged`, and "
    "that is reported as DAMAGED_FILE. A good document that is not as it was written, by hand or "
    "by a flipped bit, is taken and reported as CHANGED_FILE. Without a readable version the "
    "broker does not start, and names both files and the choice; without any version it starts, "
    "and reports so."
)
BACKUP = "The version before; only read when the file cannot be."
SETTINGS = (
    "Settings that were changed while a broker ran that was started without a file of its user. "
    "A .properties file whose last line, a comment, is its seal: checksum, when it was written and "
    "for which store; the copy (`.bak`) holds the same. Damaged, missing, cut off or of another "
    "store: the copy is read, the damaged file is kept as `.damaged`, and that is reported as "
    "DAMAGED_FILE. A file changed by hand, or by a flipped bit, is taken, reported as "
    "CHANGED_FILE, and sealed anew; but with a key that no broker knows, or a value that it "
    "refuses, the copy is read. To take settings away by hand, leave the line with the seal where "
    "it is: without the end of the file it counts as cut off. Without a readable version the "
    "broker does not start, and names both files and the choice; without any version it starts, "
    "and reports so. A file without a seal, of an earlier version or of somebody, is taken and "
    "sealed."
)
SETTINGS_COPY = "The same as the file, unless there was no room; only read when the file cannot be."
SPOOL = (
    "What waits for the lake. Rows that are gone are reported as SPOOL_LOSS, a spool of "
    "another life as SPOOL_DOUBT: consumerOffset.json says how far it was."
)
LOGS = "commitlog"
TABLES = (
    "topics.json",
    "subscriptionGroup.json",
    "consumerFilter.json",
    "consumerOffset.json",
    "delayOffset.json",
    "timerWheel.json",
    "deletedTopics.json",
)


def _rows_of_a_table() -> dict[str, tuple[Outcome, Outcome]]:
    """Whether the version before holds less depends on what has changed since."""
    return every(FALLBACK, FALLBACK) | {"swapped with its .bak": (MENDED, MENDED)}


FILES = (
    Kept(
        "commit log, the oldest file", f"{LOGS}/00000000000000000000", LOG, every(LESS, LESS), LOGS
    ),
    Kept("commit log, an older file", f"{LOGS}/00000000000000016384", LOG, every(LESS, LESS), LOGS),
    Kept(
        "commit log, the newest file", f"{LOGS}/00000000000000049152", LOG, every(LESS, LESS), LOGS
    ),
    Kept(
        "consume queue",
        "consumequeue/*s/0/00000000000000000000",
        QUEUES,
        {
            "missing": (MENDED, MENDED),
            "empty": (MENDED, MENDED),
            "truncated": (MENDED, MENDED),
            **{f"one bit flipped in {words}": (MENDED, SAME) for words in FIELDS},
            "of another store": (MENDED, MENDED),
        },
        "consumequeue/*/*",
    ),
    Kept(
        "index",
        "index/*",
        INDEX,
        {
            "missing": (MENDED, SAME),
            "empty": (MENDED, MENDED),
            "truncated": (MENDED, MENDED),
            "one bit flipped": (MENDED, MENDED),
            "of another store": (MENDED, MENDED),
        },
    ),
    Kept(
        "sums of the index",
        "indexSums/*",
        SUMS,
        {
            "missing": (SAME, SAME),
            "empty": (MENDED, SAME),
            "truncated": (MENDED, SAME),
            "one bit flipped": (MENDED, SAME),
            "of another store": (SAME, SAME),
        },
    ),
    Kept(
        "ends of the consume queues",
        "consumequeueEnds",
        ENDS,
        every(SAME, SAME),
    ),
    Kept(
        "checkpoint",
        "checkpoint",
        CHECKPOINT,
        every(SAME, SAME) | {"of another store": (MENDED, MENDED)},
    ),
    Kept("abort", "abort", ABORT, every(ABSENT, SAME)),
    *(
        row
        for name in TABLES
        for row in (
            Kept(name, f"config/{name}", TABLE, _rows_of_a_table()),
            Kept(f"{name}.bak", f"config/{name}.bak", BACKUP, every(SAME, SAME)),
        )
    ),
    Kept("delay logs", "delaylog/*", DELAY_LOGS, every(MENDED, MENDED)),
    Kept(
        "broker.properties",
        "config/broker.properties",
        SETTINGS,
        every(MENDED, MENDED)
        | {"one bit flipped": (FALLBACK, FALLBACK), "swapped with its .bak": (SAME, SAME)},
    ),
    Kept("broker.properties.bak", "config/broker.properties.bak", SETTINGS_COPY, every(SAME, SAME)),
    Kept("spool", "spool/*.seg", SPOOL, every(LESS, LESS)),
)


def rows() -> Iterator[tuple[Kept, str, bool, Outcome]]:
    """File, damage, was the stop clean, outcome; one test each."""
    for kept in FILES:
        for damage, outcomes in kept.outcomes.items():
            for clean, outcome in zip((True, False), outcomes, strict=True):
                if outcome is not ABSENT:
                    yield kept, damage, clean, outcome


def document() -> str:
    """docs/damaged-files.md."""
    lines = [
        "# What a broker does with a damaged file",
        "",
        "Every file of a store, every damage, after a clean and after an unclean stop, as the",
        "tests hold it against a running broker. *Reported* means a line on the terminal and a row",
        "in `lifecycle`. *Everything* means messages, keys, topics, groups, selectors, consume",
        "offsets, delay cursors, timers, deletions, pulled marks, settings and rows of the spool.",
        "",
        "| file | damage | after a clean stop | after an unclean stop |",
        "|---|---|---|---|",
    ]
    for kept in FILES:
        for damage, (clean, unclean) in kept.outcomes.items():
            lines.append(f"| {kept.name} | {damage} | {clean.value} | {unclean.value} |")
    names_of: dict[str, list[str]] = {}
    for kept in FILES:
        names_of.setdefault(kept.about, []).append(kept.name)
    for about, names in names_of.items():
        lines += ["", f"**{', '.join(names)}.** {about}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
