"""A lake that cannot be written is refused before anybody is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.foundation.errors import LakeError
from experiment.kills import run_kills
from experiment.plan import Flush, Listener, make_plan
from pipelines.lake.lake import Lake


@pytest.mark.timeout(20)  # A kill alone takes longer.
def test_no_process_is_begun_for_a_lake_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    plan = make_plan(1, 1, tuple(Listener), tuple(Flush))
    said: list[str] = []

    with pytest.raises(LakeError, match=r"file/lake.* cannot be written"):
        run_kills(
            plan,
            tmp_path / "home",
            Lake.at(str(tmp_path / "file" / "lake")),
            compute=lambda _: None,
            report=said.append,
        )

    assert said == []
    assert not (tmp_path / "home").exists()
