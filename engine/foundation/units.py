"""Named factors for bytes and time, so that no bare 1024 or 1000 appears in the code.

Beside them, the type of whatever holds bytes.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS
MILLISECOND_US: Final = 1000
SECOND_US: Final = 1_000_000

Buffer = bytes | bytearray | memoryview
