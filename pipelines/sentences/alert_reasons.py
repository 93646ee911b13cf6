"""Sentences that explain an alert's state and the rates behind it.

Place in the walk: the life cycle of alerts, and the tables that alerting derives → summary, reason
and evidence. Pure. Absent on purpose: the texts of rules (`alerts`), and what rate is too much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pipelines.base.wording import count, duration, plural
from pipelines.sentences.figures import messages, whole

FLAPPING: Final = "It flaps: it changed 4 times within 30 min, and is held until it rests as long."

SUBJECT_GONE: Final = "What it is about is not there any more."
RULE_GONE: Final = "Its rule is not there any more."
RESTS: Final = "Its condition holds no more; it is held for a while."
ELSEWHERE: Final = "It is in another notice since its labels, or the routes, were changed."


_WHY: Final[Mapping[str, str]] = {
    "NO_DATA": "its table has no data",
    "EVAL_ERROR": "its evaluation fails",
    "WITHHELD": "a check of its data failed",
}


def not_judged(rule: str, outcome: str) -> str:
    """That a rule cannot be judged: NO_DATA, EVAL_ERROR or WITHHELD."""
    return whole(f"rule {rule} cannot be judged: {why_not_judged(outcome)}")


def why_not_judged(outcome: str) -> str:
    """What is in the way of a rule, as a clause."""
    return _WHY[outcome]


def unknown_now(why: str) -> str:
    """That nobody knows whether an alert still holds."""
    return whole(f"whether it still holds is unknown: {why}")


def inhibited(rule: str) -> str:
    """Why nobody is notified of an alert that another one makes needless."""
    return f"inhibited by {rule}"


def silenced(author: str, comment: str) -> str:
    """Why nobody is notified of an alert that somebody silenced."""
    return f"silenced by {author}: {comment}"


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
