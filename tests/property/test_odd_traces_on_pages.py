"""Anybody may write traces: what of them can be read can be shown, whatever it says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dashboards.formatting import instant, visible
from dashboards.models.message_path import in_order, traced_steps
from engine.admin.api.messages import step_of
from engine.foundation.errors import RemoteProtocolError
from engine.protocol.trace import FIELD_END, TRACE_END, decode_traces

numbers = st.integers(-(10**25), 10**25) | st.sampled_from([2**31, 2**63 - 1, -(2**63), 10**400])
fields = st.one_of(
    numbers.map(str),
    st.sampled_from(["true", "null", "", "0", "4", "COMMIT_MESSAGE", "\u202e<b>", "1_0"]),
    st.text(max_size=8),
)
kinds = st.sampled_from(["Pub", "SubBefore", "SubAfter", "EndTransaction"])


def sound(kind: str, number: int) -> list[str]:
    """A trace of this kind that says `number` wherever it says a number."""
    said = str(number)
    return {
        "Pub": [kind, said, "r", "g", "t", "ID", "tag", "k", "h", said, said, "0", "off", "true"],
        "SubBefore": [kind, said, "r", "g", "rq", "ID", said, "k"],
        "SubAfter": [kind, "rq", "ID", said, "true", "k", "0", said, "g"],
        "EndTransaction": [
            *(kind, said, "r", "g", "t", "ID", "tag", "k", "h", "2", "tx", "COMMIT_MESSAGE", "true")
        ],
    }[kind]


traces = st.one_of(
    st.builds(sound, kinds, numbers),
    st.builds(lambda kind, more: [kind, *more], kinds, st.lists(fields, max_size=14)),
)


@given(traces)
def test_what_can_be_read_of_a_trace_can_be_shown(lines: list[str]) -> None:
    try:
        read = decode_traces(FIELD_END.join(lines) + TRACE_END)
    except RemoteProtocolError:
        return
    for step in in_order(traced_steps([step_of(trace) for trace in read])):
        assert instant(step.at)
        assert visible(step.text)
