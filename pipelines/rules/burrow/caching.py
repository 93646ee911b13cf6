"""Caches answers of Burrow's evaluator for `expire_cache_s`, as its callers get them.

Place in the walk: between `storage` and whoever asks. Asking a group that has expired makes storage
forget it, so when somebody asks is part of the state.

Invariant: an answer, also "not found", is given again until it is older than `expire_cache_s`.
Absent on purpose: clocks. The cache holds a row for each group that was ever asked for and is as
large as storage; `forget` empties it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.foundation.errors import ConfigError
from pipelines.rules.burrow.evaluator import NOT_FOUND, GroupStatus, evaluate_group
from pipelines.rules.burrow.storage import Storage


@dataclass(frozen=True, slots=True)
class EvaluatorSettings:
    """Burrow's names and defaults."""

    allowed_lag: int = 0
    """Lag that is never a problem, for all groups alike."""
    minimum_complete: float = 0.0
    """Share of a ring that must be filled before it is judged."""
    expire_cache_s: int = 10
    """How long an answer is given again; 0: never."""

    def __post_init__(self) -> None:
        if self.allowed_lag < 0:
            raise ConfigError("allowed-lag", self.allowed_lag, "messages, 0 or more")
        if not 0.0 <= self.minimum_complete <= 1.0:
            raise ConfigError("minimum-complete", self.minimum_complete, "a share from 0 to 1")
        if self.expire_cache_s < 0:
            raise ConfigError("expire-cache", self.expire_cache_s, "seconds, 0 or more")


class CachingEvaluator:
    """Statuses of groups of several clusters."""

    def __init__(self, clusters: Mapping[str, Storage], settings: EvaluatorSettings) -> None:
        self._clusters = clusters
        self._settings = settings
        self._answers: dict[tuple[str, str], tuple[int, GroupStatus]] = {}

    def status(self, cluster: str, group: str, *, now_ms: int) -> GroupStatus:
        """The group's status, NOTFOUND for a cluster or group that is not known."""
        kept = self._answers.get((cluster, group))
        fresh_ms = self._settings.expire_cache_s * 1000
        if kept is not None and fresh_ms and now_ms <= kept[0] + fresh_ms:
            return kept[1]
        answer = self._evaluate(cluster, group, now_s=now_ms // 1000)
        self._answers[cluster, group] = (now_ms, answer)
        return answer

    def forget(self) -> None:
        """Evaluate every group anew when it is asked for next."""
        self._answers.clear()

    def _evaluate(self, cluster: str, group: str, *, now_s: int) -> GroupStatus:
        storage = self._clusters.get(cluster)
        if storage is None:
            return NOT_FOUND
        return evaluate_group(
            storage.fetch(group, now_s=now_s),
            now_s=now_s,
            allowed_lag=self._settings.allowed_lag,
            minimum_complete=self._settings.minimum_complete,
        )
