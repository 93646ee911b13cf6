"""Rows of the spool as columns of the lake: no number that a client may choose keeps them out."""

from __future__ import annotations

import pytest

from engine.foundation.errors import LakeError
from engine.foundation.observing import RetryStep
from engine.telemetry.events import row_of
from engine.telemetry.shipper.arrow_schemas import Speaker, SpooledRow, arrow_rows
from engine.telemetry.tables import RETRY_DLQ_FLOW

SPEAKER = Speaker("cluster", "broker", "cluster/broker/0")


def sent_back(reconsume_times: object) -> SpooledRow:
    step = RetryStep(
        message_id="ID",
        origin_topic="orders",
        origin_queue_id=None,
        origin_offset=None,
        group="orders-group",
        reconsume_times=reconsume_times,  # type: ignore[arg-type]
        step="SENT_BACK",
        delay_ms=None,
        reason=None,
    )
    return SpooledRow(1, 1, 1, row_of(step)[1])


def test_a_count_that_no_column_holds_is_shipped_as_the_highest_it_holds() -> None:
    rows = [sent_back(times) for times in (1, 2**31, -(2**40))]
    shipped = arrow_rows(RETRY_DLQ_FLOW, SPEAKER, rows)
    assert shipped["reconsume_times"].to_pylist() == [1, 2**31 - 1, -(2**31)]


def test_what_is_no_number_at_all_is_refused() -> None:
    with pytest.raises(LakeError, match=r"retry_dlq_flow\.reconsume_times: .* is no int"):
        arrow_rows(RETRY_DLQ_FLOW, SPEAKER, [sent_back("many")])
