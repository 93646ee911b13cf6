"""Row D3: a real RocketMQ 5.5 and our broker select the same messages by each selector.

Most of the selectors can match nothing, or seem to. What both say is what the rows have, with which
a fast test compares our evaluator (`unit/protocol/test_selectors.py`).
"""

from __future__ import annotations

import pytest

from tests.interop.our_engine import OurEngine
from tests.interop.real_rocketmq import RealRocketMQ
from tests.interop.selector_rows import asked
from tests.selectors import REFUSED, VALUES, WITHOUT, known_rows


@pytest.mark.timeout(240)
async def test_row_d3_selectors_select_the_same_on_the_wire(
    apache_rocketmq: RealRocketMQ, engine_process: OurEngine
) -> None:
    theirs, theirs_by_pull = await asked(apache_rocketmq.broker, list(known_rows()))
    ours, ours_by_pull = await asked(engine_process.broker, list(known_rows()))
    assert theirs == known_rows(), "record them anew: python -m tests.interop.selector_rows"
    assert ours == theirs
    accepted = {one: row for one, row in theirs.items() if row != REFUSED}
    assert accepted.items() <= theirs_by_pull.items()
    assert ours_by_pull == ours
    for refused in theirs.keys() - accepted.keys():
        given = theirs_by_pull[refused]
        assert given == [WITHOUT, *VALUES], "a pull's own selector that is none selects everything"
