"""Sentences on rates that alerts look at: failures of five minutes, and objectives used up.

Place in the walk: rows of `pipelines/alerting/derived` → their column `evidence`. Pure. Absent on
purpose: what rate is too much.
"""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.base.wording import count, duration, plural
from pipelines.sentences.figures import messages, whole


def retries(row: Mapping[str, int | str]) -> str:
    """Failures, invisible times that ran out, or both: whatever there were, and what is usual."""
    group, said = f"group {row['group']}", []
    if row["failed_5m"] or row["failed_hour"]:
        failed = f"{group} failed {messages(int(row['failed_5m']))} within 5 min"
        said.append(f"{failed}, {_before(row, 'failed_hour', 'usual_5m')}")
    if row["came_back_5m"] or row["came_back_hour"]:
        ran_out = plural(int(row["came_back_5m"]), "invisible time")
        back = f"{ran_out} of {group} ran out within 5 min"
        said.append(f"{back}, {_before(row, 'came_back_hour', 'usual_came_back_5m')}")
    return whole(*said)


def _before(row: Mapping[str, int | str], hour: str, usual: str) -> str:
    in_hour, each = int(row[hour]), int(row[usual])
    if not in_hour:
        return "and none in the hour before"
    return f"and {count(in_hour)} in the hour before, about {count(each)} each 5 min"


def objective(
    group: str, *, lag_ms: int, share_percent: float, behind_1h_ms: int, behind_6h_ms: int
) -> str:
    """For how long a group was further behind than its objective allows."""
    return whole(
        f"group {group} was more than {duration(lag_ms)} behind for {duration(behind_1h_ms)} of "
        f"the last hour and {duration(behind_6h_ms)} of the last six",
        f"its objective is {duration(lag_ms)} at most for {share_percent:g} % of the time",
    )
