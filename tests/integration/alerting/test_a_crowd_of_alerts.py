"""Very many alerts at once, through the real process: few notices, and none forgotten."""

from __future__ import annotations

from pathlib import Path

from bench.analytics.alert_crowd import crowd
from pipelines.alerting.grouping import GROUPS_MAX


def test_hundreds_of_groups_that_stand_at_once_are_few_notices_that_speak_of_all(
    tmp_path: Path,
) -> None:
    seen = crowd(tmp_path, 400)
    assert seen.notices == GROUPS_MAX + 1
    assert seen.spoken_of == 400
