"""Persists state between check runs: the position reached and the rows carried forward.

Place in the walk: read before a batch is chosen, written when its results are in gold. One small
file, <lake>/state/checks/memory.json, and beside it what is carried of tables: open intervals
(`intervals`), the last ends of queues (`queue_ends`), who has led (`masters`).

Invariant: it is replaced as a whole, after the results: a run that dies before is judged again,
with the same findings under another name; none is skipped. Its size grows with emitters and tables,
not with rows or age. Absent on purpose: rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.lake.small_files import SmallFiles
from pipelines.lake.tail import Place

FOLDER: Final = "checks"
_FILE: Final = "memory.json"
_FORMER: Final = "intervals"
"""The name of `carried` in files of earlier versions."""


@dataclass(frozen=True, slots=True)
class TablePosition:
    """How far one table was judged."""

    place: Place = field(default_factory=Place.start)
    """In its log, before everything that was not judged."""
    seen: int = -1
    """Version up to which a run has looked: what comes later is new to everybody."""
    newest_us: int | None = None
    """Data time of its newest judged row; None before the first."""


@dataclass(frozen=True, slots=True)
class EmitterMemory:
    """How far one emitter was judged, and what is open about it."""

    seq_to: int = 0
    shipment_to: int = 0
    time_to_us: int = 0
    health_to: int | None = None
    """Up to which seq gold has reported its health; None before the first."""
    loss_seq: int | None = None
    """A loss of rows after which no complete snapshot has come; None when none is open."""
    loss_us: int = 0
    loss_detail: str = ""
    snapshot_from: int = -1
    """Its newest complete snapshot began there."""
    is_stopped: bool = False
    """Its last word was a clean stop."""
    unused_to: int = 0
    """Seqs up to `seq_to` that no row has."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Everything that is remembered."""

    run_id: str = ""
    """Of the pipeline's run whose gold was judged; another one begins anew."""
    cycle: int = 0
    """The last cycle that was judged."""
    tables: Mapping[str, TablePosition] = field(default_factory=dict)
    emitters: Mapping[str, EmitterMemory] = field(default_factory=dict)
    carried: Mapping[str, str] = field(default_factory=dict)
    """Table -> name of the file of what is carried of it."""

    def table(self, name: str) -> TablePosition:
        """How far a table was judged."""
        return self.tables.get(name, TablePosition())

    def emitter(self, name: str) -> EmitterMemory:
        """What is known of an emitter."""
        return self.emitters.get(name, EmitterMemory())


def load(lake: Lake) -> Memory:
    """What the last run has left; of a lake without one, nothing. LakeError when it is damaged."""
    held = SmallFiles(lake).read(_address(lake))
    if held is None:
        return Memory()
    try:
        stored: dict[str, Any] = json.loads(held.data)
        tables = {
            name: TablePosition(**{**one, "place": Place(**one["place"])})
            for name, one in stored["tables"].items()
        }
        emitters = {name: EmitterMemory(**one) for name, one in stored["emitters"].items()}
        carried = stored["carried"] if "carried" in stored else stored[_FORMER]
        return Memory(str(stored["run_id"]), int(stored["cycle"]), tables, emitters, carried)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LakeError(
            f"{_address(lake)} is damaged ({error}): remove it; the next `tidemark check` begins "
            "with the oldest rows that are there"
        ) from error


def store(lake: Lake, memory: Memory) -> None:
    """Replace it."""
    SmallFiles(lake).replace(_address(lake), json.dumps(asdict(memory)).encode())


def begun_for(memory: Memory, run_id: str) -> Memory:
    """The memory for a run of the pipeline: of another one, everything is judged anew."""
    return memory if memory.run_id == run_id else replace(Memory(), run_id=run_id)


def _address(lake: Lake) -> str:
    return f"{lake.state(FOLDER)}/{_FILE}"
