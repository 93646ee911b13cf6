"""Memory that nobody uses any more, given back to the machine.

Place in the walk: after a crowd has gone. What connections leave behind hangs together in circles
that Python looks for rarely, and the C library keeps what was freed between things that live on: a
thousand handshakes that came and went held 100 MiB for as long as the process lived.

Absent on purpose: when. Whoever saw the crowd go calls, beside the event loop; it takes 50 ms.
"""

from __future__ import annotations

import gc


def give_back_memory() -> None:
    """Collect garbage, then ask the C library to return what is free, where it knows how."""
    import ctypes  # noqa: PLC0415 - 5 ms of each start, for what most processes never need

    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
