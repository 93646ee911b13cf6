"""Adds to `tm`'s answers a sentence on a group that reads by POP.

Place in the walk: gold pop_progress → a sentence behind those about lag. Absent on purpose: words
(`pop_groups`).
"""

from __future__ import annotations

from pipelines.reading.reading import LOOK_BACK, Reading
from pipelines.sentences.pop_groups import pop_group
from pipelines.tm.arguments import Asked


def pop_text(reading: Reading, asked: Asked) -> str:
    """A further sentence, with a blank before it; nothing of a group that does not read by POP."""
    present = reading.moment.present
    if present is None or asked.group is None:
        return ""
    since = present - LOOK_BACK
    rows = reading.rows("pop_progress", *asked.place, *asked.times, since=since)
    found = pop_group(reading.present("pop_progress", rows))
    return "" if found is None else f" {found.sentence(asked.group)}"
