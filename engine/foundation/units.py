"""Named constants for bytes and time that replace bare factors such as 1024 and 1000.

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
