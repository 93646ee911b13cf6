"""Whatever bytes come, decoders answer with their declared errors and little memory: frames,
headers, bodies, records, every file of a store. `make fuzz` goes on where this short look ends.
"""

from __future__ import annotations

import contextlib
import tracemalloc

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine.foundation.units import MIB
from tests.amounts import examples
from tests.fuzz.targets import TARGETS, Target

OF_A_STORE = "accepted message"
"""Each input of this target is a store of its own."""
MEMORY_PER_BYTE_MAX = 400
"""A byte of JSON may become an object of Python."""


@st.composite
def bent(draw: st.DrawFn, samples: tuple[bytes, ...]) -> bytes:
    """A sample with some bytes changed, cut or repeated, or bytes of no origin."""
    if draw(st.integers(0, 3)) == 0:
        return draw(st.binary(max_size=300))
    data = bytearray(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 4)):
            case 0 if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                data[at : at + 4] = draw(
                    st.sampled_from([b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"])
                )
            case 2:
                del data[at:]
            case 3:
                data[at:at] = draw(st.binary(max_size=20))
            case _:
                data[at:at] = data[max(0, at - 30) : at]
    return bytes(data)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_hostile_bytes_end_in_a_declared_error(target: Target) -> None:
    samples = tuple(sample for sample in target.samples if sample)
    assert samples, "nothing to begin with"
    for sample in samples:
        with contextlib.suppress(*target.allowed):
            target.run(sample)

    @settings(
        examples(15 if target.name == OF_A_STORE else 60, in_full=60),
        suppress_health_check=list(HealthCheck),
    )
    @given(bent(samples))
    @example(b"")
    def one_input(data: bytes) -> None:
        try:
            target.run(data)
        except target.allowed:
            return

    one_input()


@pytest.mark.parametrize(
    "target",
    [each for each in TARGETS if "store" not in each.name and each.name != OF_A_STORE],
    ids=lambda target: target.name,
)
def test_hostile_bytes_do_not_make_a_decoder_take_much_memory(target: Target) -> None:
    claims = [b"\x7f\xff\xff\xff", b"\x00\xff\xff\xff", b"[" * 4000, b"9" * 4000, b'{"a":' * 800]
    inputs = [claim + sample for claim in claims for sample in target.samples]
    inputs += [sample[:4] + claim + sample[8:] for claim in claims for sample in target.samples]
    for data in inputs:
        tracemalloc.start()
        try:
            target.run(data)
        except target.allowed:
            pass
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak <= len(data) * MEMORY_PER_BYTE_MAX + MIB, f"{peak} bytes for {data[:60]!r}"
