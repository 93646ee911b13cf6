"""Prints the experiment's verdict as a table on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from experiment.kills import Outcome
from experiment.plan import Listener, Victim
from experiment.score import KillRow, Verdict, verdict

COLUMNS = ("kills", "twice", "foreseen", "predicted", "came again", "certain", "came again")


def print_outcome(outcome: Outcome, console: Console) -> None:
    """Print the figures by victim, by listener and in all, and whether they hold."""
    played = outcome.played.killed
    shown = Table(title=f"{outcome.run}: messages delivered twice, and what gold had predicted")
    shown.add_column("of")
    for name in COLUMNS:
        shown.add_column(name, justify="right")
    for victim in Victim:
        rows = [row for row in outcome.rows if row.killed.kill.victim is victim]
        kills = sum(1 for one in played if one.kill.victim is victim)
        _add(shown, f"kills of {victim.value}", rows, kills)
    for listener in Listener:
        of_group = [row for row in outcome.rows if row.queue[0] == listener.group]
        if of_group:
            _add(shown, f"{listener.value} listeners", of_group, len(played))
    _add(shown, "all", outcome.rows, len(played))
    console.print(shown)
    for victim in Victim:
        rows = [row for row in outcome.rows if row.killed.kill.victim is victim]
        console.print(rest_in_words(victim, rows), highlight=False)
    for row in outcome.rows:
        if row.unforeseen:
            group, topic, queue_id = row.queue
            number = row.killed.kill.number
            console.print(
                f"NOT foreseen: {row.unforeseen} of {group} on {topic}/{queue_id}, kill {number}"
            )
    console.print(sentence(outcome.verdict), highlight=False)


def sentence(found: Verdict) -> str:
    """The verdict in words."""
    holds = "holds" if found.holds else "does NOT hold"
    return (
        f"recall {_ratio(found.recall)}, precision {_ratio(found.precision)}; certain parts in "
        f"{found.kills_with_certain} of {found.kills} kills, {found.certain_again} of "
        f"{found.certain} certain messages came again: the prediction {holds}"
    )


def rest_in_words(victim: Victim, rows: Sequence[KillRow]) -> str:
    """Which predicted messages did not come again after kills of this kind."""
    rest = sum((Counter(row.rest) for row in rows), Counter[str]())
    if not rest:
        return f"kills of {victim.value}: all that was predicted came"
    parts = "; ".join(f"{count:,} {words}" for words, count in rest.most_common())
    return f"kills of {victim.value}: {rest.total():,} predicted messages did not come: {parts}"


def _add(shown: Table, name: str, rows: Sequence[KillRow], kills: int) -> None:
    found = verdict(rows, kills)
    figures = (
        *(found.kills, found.redelivered, found.foreseen, found.predicted),
        *(found.hits, found.certain, found.certain_again),
    )
    shown.add_row(name, *(f"{figure:,}" for figure in figures))


def _ratio(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4f}"
