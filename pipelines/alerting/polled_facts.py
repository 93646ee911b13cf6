"""Says how exact an alert is when its broker is observed from outside.

Place in the walk: whom a look at gold speaks of → a text of the alert, which every channel, page
and command shows beside its evidence.

Invariant: pure. An alert says so when all that it may be about is polled: of a broker that reports
on itself it says nothing. One that names no cluster, as of the lake or of a job, rests on no
broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pipelines.alerting.alerts import Figure
from pipelines.base.wording import count
from pipelines.reading.moment import Reached, cluster_of, is_observer
from pipelines.sentences.emitters import polled


class PolledFacts:
    """Those of one look."""

    def __init__(self, reached: Iterable[Reached]) -> None:
        self._reached = {one.emitter: one for one in reached}
        self._of_cluster: dict[str, list[Reached]] = {}
        for one in self._reached.values():
            self._of_cluster.setdefault(cluster_of(one.emitter), []).append(one)
        self._known: dict[tuple[str | None, str | None, str], str] = {}

    def said_of(self, labels: Mapping[str, str], figures: Mapping[str, Figure]) -> str:
        """What is said of an alert with these labels and figures; empty: it rests on none."""
        emitter = labels.get("emitter") or figures.get("emitter")
        place = labels.get("cluster"), labels.get("broker"), str(emitter or "")
        if place not in self._known:
            self._known[place] = self._said(*place)
        said, messages = self._known[place], figures.get("error_messages")
        if said and isinstance(messages, int) and messages > 0:
            return f"{said}, numbers of messages to ± {count(messages)}"
        return said

    def _said(self, cluster: str | None, broker: str | None, emitter: str) -> str:
        if emitter in self._reached:
            about = [self._reached[emitter]]
        else:
            about = [
                one
                for one in self._of_cluster.get(cluster or "", ())
                if broker is None or one.emitter.split("/")[1] == broker
            ]
        if not about or not all(is_observer(one.emitter) for one in about):
            return ""
        return polled(one.report_each_ms for one in about)
