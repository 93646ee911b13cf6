"""Sort order of alerts: the most urgent first.

Place in the walk: below lists of commands and of pages, which order alike. Pure.
"""

from __future__ import annotations

from typing import Final

from pipelines.alerting.alerts import Alert, State
from pipelines.alerting.rules import Severity

_STATES: Final = {
    state: rank
    for rank, state in enumerate(
        (
            *(State.FIRING, State.EVAL_ERROR, State.NO_DATA, State.WITHHELD),
            *(State.PENDING, State.RESOLVED),
        )
    )
}
_SEVERITIES: Final = {severity.value: rank for rank, severity in enumerate(Severity)}


def urgency(alert: Alert) -> tuple[int, int, int, str]:
    """Less is more urgent: firing ones first, the worst and newest of them first; then those of
    rules that cannot be judged, pending ones, those for information alone, and resolved ones."""
    rank = _STATES[alert.state]
    if alert.state is State.RESOLVED:
        return rank + 1, 0, -(alert.resolved_at_us or 0), alert.fingerprint
    if alert.severity == Severity.INFO.value:
        rank = _STATES[State.RESOLVED]
    severity = _SEVERITIES.get(alert.severity, len(_SEVERITIES))
    began_us = alert.fired_at_us or alert.active_at_us
    return rank, severity, -began_us, alert.fingerprint
