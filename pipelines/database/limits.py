"""Defines limits on how much data the database stores and for how long.

Each figure says what happens beyond it.
"""

from __future__ import annotations

from typing import Final

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
DAY_US: Final = 86_400 * SECOND_US

OPEN_MAX: Final = 20_000
"""Open alerts of one lake, pending ones included. Beyond it only the worst begin that there is
room for; the log says of which rules."""

REMEMBERED_MAX: Final = 20_000
"""Resolved alerts by which it is seen whether they flap. Beyond it those go early of which nobody
was reported."""

RESOLVED_KEPT_US: Final = 7 * DAY_US
"""Resolved alerts that the life cycle has not forgotten before: its clock stands still with gold.
The Delta table `alerts` has all for longer."""

RESOLVED_KEPT_MAX: Final = 10_000
"""Resolved alerts of one lake; beyond it the oldest go earlier."""

NOTICES_KEPT_US: Final = 7 * DAY_US
"""Notices that were delivered, replaced or given up."""

NOTICES_KEPT_MAX: Final = 20_000
"""The same of one lake; beyond it the oldest go earlier."""

SILENCES_KEPT_US: Final = 90 * DAY_US
"""Silences, from their end on."""

OPERATIONS_KEPT_US: Final = 7 * DAY_US
"""Operations, from their end on."""

ROWS_PER_TIDYING: Final = 2_000
"""Rows of one kind that one transaction removes: others write in between."""

WAITING_MAX: Final = 1_000
"""Notices that wait for one receiver. Beyond it the oldest that a newer one of its group waits
behind is replaced by that one, which takes over what the older alone could report: that an alert is
resolved. The newest of a group is never replaced, so at most one a group more than this waits.
"""

ALERTS_PER_NOTICE_MAX: Final = 1_000
"""Alerts in a notice that took over another's; those beyond it are counted."""

GIVE_UP_US: Final = 3 * DAY_US
"""A notice that could not be delivered for so long is given up, and the log says so."""

CHANGES_WAITING_MAX: Final = 200_000
"""Changes of alerts that wait until the lake takes them, some 200 MB. Beyond it the oldest go: the
lake's history has a gap then, which its numbers show, and the log says so."""

TEXT_CHARS_MAX: Final = 500
"""Of an error that is kept beside a notice or a receiver."""

assert GIVE_UP_US < NOTICES_KEPT_US, "a notice is not forgotten before it is given up"
