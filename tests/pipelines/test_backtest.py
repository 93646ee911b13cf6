"""`tidemark backtest` on planted stories: what each rule set finds, and when."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from engine.foundation.errors import ConfigError, LakeError
from pipelines.backtest.commands import app
from pipelines.backtest.report import as_json
from pipelines.backtest.rule_sets import Tried
from pipelines.backtest.run import Outcome, backtest, golds_of
from pipelines.backtest.scoring import Range, Score
from pipelines.backtest.truths import Incident, append_incidents
from pipelines.backtest.verdicts import batches_of
from pipelines.base.settings import Evaluation
from pipelines.cycles.driver import Job
from pipelines.lake.lake import Lake
from pipelines.rules.burrow.over_time import BurrowRules
from pipelines.rules.thresholds import Thresholds
from tests.pipelines.bronze_lake import SECOND
from tests.pipelines.cluster_story import ClusterStory, moment
from tests.pipelines.gold_lake import SHORT, compute
from tests.pipelines.in_process import in_process

FROZEN_AT, DEAD_AT, OVER_AT, END = 60, 90, 150, 240
LONG = Evaluation(window_ms=60_000, slide_ms=2_000)


def incident(group: str, begin_s: int, end_s: int, queue_id: int | None = None) -> Incident:
    """A planted one."""
    return Incident(
        moment(begin_s), moment(end_s), group, "PLANTED", "cluster-1", f"topic-{group}", queue_id
    )


TRUTH = [incident("frozen", FROZEN_AT, OVER_AT, 0), incident("dead", DEAD_AT, OVER_AT)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four minutes: a listener that does not return, a group whose only client goes away, and two
    groups with nothing wrong, of which one is read at leisure.
    """
    root = tmp_path_factory.mktemp("planted") / "lake"
    story = ClusterStory(root)
    story.group("calm", ["calm-1", "calm-2"])
    story.group("frozen", ["frozen-1", "frozen-2"])
    story.group("dead", ["dead-1"], queues=1)
    story.group("idle", ["idle-1"], queues=1, rate=0)
    story.run(FROZEN_AT)
    story.freeze(story.queue("frozen", 0))
    story.run(DEAD_AT - FROZEN_AT)
    (queue,) = story.lose("dead", "dead-1", reason="HEARTBEAT_EXPIRED")
    story.run(OVER_AT - DEAD_AT)
    story.queue("frozen", 0).frozen_at = None
    story.join("dead", "dead-2")
    story.assign(queue, "dead-2")
    story.run(END - OVER_AT)
    compute(root)
    append_incidents(Lake.at(str(root)), TRUTH)
    return root


def over(begin_s: int = 0, end_s: int = END - 2) -> Range:
    """A range of the story, with half a minute of grace."""
    return Range(moment(begin_s), moment(end_s), grace_us=30 * SECOND)


def outcome_of(
    lake: Path,
    tried: Sequence[Tried],
    *,
    incidents: Sequence[Incident] | None = TRUTH,
    of: Range | None = None,
    into: Path | None = None,
    batch_rows: int = 100_000,
) -> Outcome:
    """A backtest whose replays are computed in this process."""
    home, span = Lake.at(str(lake)), of or over()

    def silent(_line: str) -> None:
        """Progress is not looked at."""

    golds = golds_of(home, tried, span, into=str(into), job=lambda: in_process, say=silent)
    return backtest(
        home,
        tried,
        incidents,
        span,
        golds=golds,
        every_us=2 * SECOND,
        warm_up_us=600 * SECOND,
        say=silent,
        batch_rows=batch_rows,
    )


ALL = [
    Tried("ours", SHORT),
    Tried("burrow", BurrowRules()),
    Tried("plain", Thresholds(lag_max=300, for_s=10)),
]


def seconds_to_detect(score: Score) -> dict[str, float | None]:
    """Per incident that was found, after how long."""
    return {
        one.incident.group: None
        if one.detected_after_us is None
        else one.detected_after_us / SECOND
        for one in score.findings
        if one.found
    }


def test_three_rule_sets_side_by_side_on_the_same_facts(lake: Path) -> None:
    scores = outcome_of(lake, ALL, of=over(begin_s=30)).scores
    # 11 messages a second: 300 after 28 s, and ten more for the plain limit.
    assert seconds_to_detect(scores["plain"]) == {"frozen": 38, "dead": 38}
    # Ten equal commits, 5 s apart, are a stall for Burrow. That the group died it does not see: of
    # the ends it polled in 100 s, one lies below the last commit.
    assert seconds_to_detect(scores["burrow"]) == {"frozen": 50}
    ours = seconds_to_detect(scores["ours"])
    assert ours.keys() == {"frozen", "dead"}
    assert ours["frozen"] is not None
    assert ours["frozen"] < 38
    assert {name: (one.false, one.notices) for name, one in scores.items()} == {
        "ours": (0, 2),
        "burrow": (0, 1),
        "plain": (0, 2),
    }


def test_a_limit_that_is_too_tight_reports_what_is_fine(lake: Path) -> None:
    tight = [Tried("tight", Thresholds(lag_max=40, for_s=0))]
    score = outcome_of(lake, tight).scores["tight"]
    assert score.found == 2
    assert score.false > 10


def test_burrow_takes_each_first_commit_for_the_end_of_a_consumer(lake: Path) -> None:
    score = outcome_of(lake, ALL[1:2]).scores["burrow"]
    assert (score.found, score.false) == (1, 3)


def test_ours_with_other_figures_are_computed_by_a_replay(lake: Path, tmp_path: Path) -> None:
    tried = [Tried("short", SHORT), Tried("long", LONG)]
    scores = outcome_of(lake, tried, into=tmp_path).scores
    short, long = (seconds_to_detect(scores[name]) for name in ("short", "long"))
    assert short["dead"] is not None
    assert long["dead"] is not None
    assert short["dead"] + 40 < long["dead"]
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_a_range_that_nothing_was_shipped_in_is_refused_before_spark_is_started(
    lake: Path, tmp_path: Path
) -> None:
    others = [Tried("long", LONG)]
    begun = []

    def begin() -> Job:
        begun.append("Spark")
        return in_process

    with pytest.raises(LakeError, match="nothing was shipped in that range"):
        golds_of(
            Lake.at(str(lake)),
            others,
            over(90_000, 99_000),
            into=str(tmp_path),
            job=begin,
            say=begun.append,
        )
    assert begun == []


def test_groups_are_tried_one_after_the_other_with_the_same_outcome(lake: Path) -> None:
    home = Lake.at(str(lake))
    batches = batches_of(home, moment(0), moment(END), rows_max=1)
    assert [batch.groups for batch in batches] == [
        (("cluster-1", group),) for group in ("calm", "dead", "frozen", "idle")
    ]
    at_once = outcome_of(lake, ALL)
    one_by_one = outcome_of(lake, ALL, batch_rows=1)
    for name, score in at_once.scores.items():
        other = one_by_one.scores[name]
        assert (other.notices, other.false) == (score.notices, score.false)
        assert seconds_to_detect(other) == seconds_to_detect(score)


def test_rules_of_alerts_stand_beside_the_others_with_the_waits_of_their_notices(
    lake: Path, tmp_path: Path
) -> None:
    alerts = tmp_path / "shop.toml"
    alerts.write_text(
        """
        [[rule]]
        name = "QueueStands"
        table = "stalled_windows"
        when = "lag_messages > 0"
        for = "10s"
        [rule.annotations]
        summary = "{{ labels.group }}"
        """,
        encoding="utf-8",
    )
    code, said = command(f"ours,{alerts}", "--lake", str(lake), *RANGE, "--json")
    assert code == 0
    ours, shop = json.loads(said)["rules"]
    assert (shop["name"], shop["found"], shop["missed"], shop["false"]) == ("shop", 2, 0, 0)
    assert shop["notices"] == 2
    waited_ms = shop["detection_ms_median"] - ours["detection_ms_median"]
    assert 20_000 <= waited_ms <= 40_000  # 30 s of the group for what may come with it


def test_the_shipped_rules_of_alerts_are_tried_by_their_name(lake: Path) -> None:
    done = invoked("alerts", "--lake", str(lake), *RANGE, "--json")
    (alerts,) = json.loads(done.stdout)["rules"]
    # That a group has no consumers is notified once gold has said it twice: it lasts a minute here.
    assert [one["group"] for one in alerts["incidents"] if one["found"]] == ["frozen", "dead"]
    assert "alerts: not played, for they are about the present moment" in done.stderr
    assert "BrokerSilent" in done.stderr


def test_without_incidents_only_notices_are_known(lake: Path) -> None:
    outcome = outcome_of(lake, ALL, incidents=None)
    assert not outcome.has_truth
    rule = json.loads(as_json(outcome))["rules"][0]
    assert (rule["found"], rule["missed"], rule["false"], rule["notices"]) == (None, None, None, 2)


def test_an_incident_of_a_group_that_nobody_heard_of_is_missed(lake: Path) -> None:
    unheard = Incident(moment(10), moment(20), "unheard", "PLANTED")
    scores = outcome_of(lake, ALL, incidents=[*TRUTH, unheard]).scores
    assert [score.missed for score in scores.values()] == [1, 2, 1]
    assert outcome_of(lake, ALL, incidents=[*TRUTH, unheard]).silent == ("unheard",)
    assert outcome_of(lake, ALL, incidents=TRUTH).silent == ()


def test_an_empty_file_of_incidents_is_said_to_be_empty(lake: Path, tmp_path: Path) -> None:
    truth = tmp_path / "truth.csv"
    truth.write_text("group,kind,begin,end\n", encoding="utf-8")
    words = ["ours", "--lake", str(lake), *RANGE, "--truth", str(truth)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0
    assert f"no incident is named in {truth}" in done.stderr


def test_a_range_ends_where_gold_ends(lake: Path) -> None:
    beyond = outcome_of(lake, ALL, of=over(end_s=END + 600))
    assert beyond.over.end_us == moment(END)
    with pytest.raises(LakeError, match="ends before the range begins"):
        outcome_of(lake, ALL, of=over(begin_s=END, end_s=END + 1))


def command(*words: str) -> tuple[int, str]:
    """Exit code and standard output of `tidemark backtest`."""
    done = invoked(*words)
    return done.exit_code, done.stdout


def invoked(*words: str) -> Result:
    """A run of `tidemark backtest` that ended as commands do."""
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


RANGE = ("--from", "2026-03-01T12:00:30Z", "--to", "2026-03-01T12:03:58Z", "--grace-s", "30")


def test_the_command_takes_planted_incidents_and_prints_a_line_a_rule_set(lake: Path) -> None:
    code, said = command("ours,burrow,thresholds", "--lake", str(lake), *RANGE)
    assert code == 0
    assert "4 groups, 2 incidents" in said
    lines = {line.split("│")[1].strip(): line for line in said.splitlines() if "│" in line}
    assert lines["ours"].split("│")[2].split() == ["2"]
    assert lines["burrow"].split("│")[3].split() == ["1"]
    assert lines["lag > 1000 for 300 s"].split("│")[5].split() == ["never"]


def test_the_command_takes_incidents_of_a_file_and_writes_json(lake: Path, tmp_path: Path) -> None:
    truth = tmp_path / "truth.toml"
    truth.write_text(
        """
        [[incident]]
        group = "frozen"
        kind = "FROZEN_HEAD"
        begin = 2026-03-01T12:01:00Z
        end = 2026-03-01T12:02:30Z
        """,
        encoding="utf-8",
    )
    code, said = command("ours", "--lake", str(lake), *RANGE, "--truth", str(truth), "--json")
    assert code == 0
    (rules,) = json.loads(said)["rules"]
    assert (rules["name"], rules["found"], rules["missed"], rules["false"]) == ("ours", 1, 0, 1)
    (incident,) = rules["incidents"]
    assert incident["detected_after_ms"] == rules["detection_ms_median"]


def test_a_range_without_facts_is_said_to_be_one_and_no_rules_are_blamed(lake: Path) -> None:
    before = ("--from", "2026-03-01T11:00:00Z", "--to", "2026-03-01T11:10:00Z")
    done = invoked("thresholds,burrow", "--lake", str(lake), *before)
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        f"no facts of any group between 2026-03-01T11:00:00Z and 2026-03-01T11:10:00Z in {lake}"
    ]
    assert "0 groups, 0 incidents" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("barrow",), "ours, burrow, thresholds, alerts"),
        (("ours", "--warm-up-s", "-1"), "--warm-up-s"),
        (("ours", "--truth", "nowhere.csv"), "a file that can be read"),
    ],
)
def test_a_wrong_question_is_refused(lake: Path, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        command(*words, "--lake", str(lake), *RANGE)
