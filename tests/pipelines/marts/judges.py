"""The judges and what they read, as the tests of this folder run them."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.marts.columns import as_declared
from pipelines.marts.consumer_lag import MART as CONSUMER_LAG
from pipelines.marts.declared import in_order
from pipelines.marts.ended_queues import MART as ENDED_QUEUES
from pipelines.marts.group_state import MART as GROUP_STATE
from pipelines.marts.mart import Given, Made, Mart, Step, mart
from pipelines.marts.risks.exposures import STEP as EXPOSURES
from pipelines.marts.stalled_windows import MART as STALLED_WINDOWS
from pipelines.reading.catalogue import OFFSET_VIOLATIONS
from tests.needed_steps import needed_for


def falls(given: Given) -> Made:
    """Offsets that fell, whatever accounts for it: all that the judges want to know."""
    rows = given.facts["consume_offsets"]
    fell = pc.and_(rows["accepted"], pc.less(rows["offset"], rows["previous_offset"]))
    fell = rows.filter(pc.fill_null(fell, False))
    count = fell.num_rows
    made = {
        **dict(zip(fell.schema.names, fell.columns, strict=True)),
        "observed_us": fell["event_us"],
        "law": pa.array(["MONOTONIC"] * count),
        "cause": pa.array(["UNEXPLAINED"] * count),
        "other_client_id": pa.nulls(count, pa.string()),
        "explained": pa.array(np.zeros(count, bool)),
        "delta": pc.subtract(fell["previous_offset"], fell["offset"]),
    }
    return Made(as_declared(made, OFFSET_VIOLATIONS))


FALLS: Final = mart(OFFSET_VIOLATIONS, falls, reads=("consume_offsets",))
MARTS: Final[tuple[Mart, ...]] = (CONSUMER_LAG, ENDED_QUEUES, GROUP_STATE, STALLED_WINDOWS)
_NAMES: Final = (*(one.name for one in MARTS), EXPOSURES.name)
JUDGES: Final[tuple[Step, ...]] = in_order([*needed_for(*_NAMES, given=[FALLS.name]), FALLS])
"""Those marts, what duplicates may come, and all the steps that these are made from."""
