"""The `tidemark admin dlq` commands, which list, re-drive and discard dead letters.

Re-drive and discard take either an id, or filters, or --everything: an order without any of them
means nothing and is refused. --dry-run shows what would be decided and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from engine.admin import Admin
from engine.admin.api.dead_letters import DeadLetter, DeadLetterQuery
from engine.admin.commands.groups import GroupArgument
from engine.admin.commands.offsets import read_time
from engine.admin.commands.output import Row, moment, shown
from engine.admin.commands.session import (
    DEFAULT_NAMESRV,
    JsonOption,
    NamesrvOption,
    ask,
    shows_rows,
)
from engine.foundation.errors import ConfigError
from engine.foundation.terminal import say
from engine.protocol.properties import PROPERTY_LEFT_OUT

app = typer.Typer(no_args_is_help=True)

PER_SECOND = 20.0
"""Re-driven messages per second by default: slow enough to watch a group that still fails."""

IdOption = Annotated[
    str | None, typer.Option("--id", help="UNIQ_KEY, offset message id, or id of the first try.")
]
TopicOption = Annotated[str | None, typer.Option("--topic", help="First sent to this topic.")]
TagOption = Annotated[str | None, typer.Option("--tag", help="With this tag.")]
KeyOption = Annotated[str | None, typer.Option("--key", help="With this business key.")]
SinceOption = Annotated[str | None, typer.Option("--since", help="Dead since: ISO 8601 or ms.")]
UntilOption = Annotated[str | None, typer.Option("--until", help="Dead before: ISO 8601 or ms.")]
EverythingOption = Annotated[bool, typer.Option("--everything", help="All that wait.")]
WhoOption = Annotated[str, typer.Option("--who", envvar="USER", help="Who decides.")]
WhyOption = Annotated[str, typer.Option("--why", help="Why: it is kept with the decision.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what is meant, only.")]


@shows_rows(app, "list", empty="no dead letters")
async def list_letters(
    admin: Admin,
    group: GroupArgument,
    *,
    message_id: IdOption = None,
    topic: TopicOption = None,
    tag: TagOption = None,
    key: KeyOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    with_decided: Annotated[
        bool, typer.Option("--all", help="Those that were decided already as well.")
    ] = False,
) -> list[Row]:
    """Dead letters of a group, oldest first."""
    query = _query((message_id, topic, tag, key, since, until))
    found = await admin.dead_letters.find(group, replace(query, with_decided=with_decided))
    return _rows(found)


@app.command("redrive")
def redrive(
    group: GroupArgument,
    *,
    why: WhyOption,
    who: WhoOption,
    message_id: IdOption = None,
    topic: TopicOption = None,
    tag: TagOption = None,
    key: KeyOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    everything: EverythingOption = False,
    per_second: Annotated[float, typer.Option("--per-second", help="At most.")] = PER_SECOND,
    leave_out: Annotated[
        bool,
        typer.Option(
            "--leave-out",
            help="Also those that no copy carries whole; the copy notes what it lacks.",
        ),
    ] = False,
    dry_run: DryRunOption = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """Give dead letters to their group once more."""
    wanted = (message_id, topic, tag, key, since, until)

    async def work(admin: Admin) -> list[DeadLetter]:
        letters = await admin.dead_letters.find(group, _order(wanted, everything=everything))
        if not dry_run:
            await admin.dead_letters.redrive_all(
                letters, who=who, why=why, per_second=per_second, leave_out=leave_out
            )
        return letters

    _show_decided(ask(namesrv, work), "re-driven", dry_run=dry_run, as_json=as_json)


@app.command("discard")
def discard(
    group: GroupArgument,
    *,
    why: WhyOption,
    who: WhoOption,
    message_id: IdOption = None,
    topic: TopicOption = None,
    tag: TagOption = None,
    key: KeyOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    everything: EverythingOption = False,
    dry_run: DryRunOption = False,
    namesrv: NamesrvOption = DEFAULT_NAMESRV,
    as_json: JsonOption = False,
) -> None:
    """Mark dead letters as given up; they stay readable until retention ends."""
    wanted = (message_id, topic, tag, key, since, until)

    async def work(admin: Admin) -> list[DeadLetter]:
        letters = await admin.dead_letters.find(group, _order(wanted, everything=everything))
        for letter in letters if not dry_run else []:
            await admin.dead_letters.discard(letter, who=who, why=why)
        return letters

    _show_decided(ask(namesrv, work), "discarded", dry_run=dry_run, as_json=as_json)


def _order(wanted: Sequence[str | None], *, everything: bool) -> DeadLetterQuery:
    """The query of an order. Raises ConfigError when it says neither which nor everything."""
    if everything == any(wanted):
        raise ConfigError(
            "dead letters", "none chosen" if not everything else "both", "filters, or --everything"
        )
    return _query(wanted)


def _query(wanted: Sequence[str | None]) -> DeadLetterQuery:
    message_id, topic, tag, key, since, until = wanted
    return DeadLetterQuery(
        message_id=message_id,
        origin_topic=topic,
        tag=tag,
        key=key,
        begin_ms=_time(since),
        end_ms=_time(until),
    )


def _time(text: str | None) -> int | None:
    return None if text is None else read_time(text)


def _show_decided(
    letters: Sequence[DeadLetter], done: str, *, dry_run: bool, as_json: bool
) -> None:
    if as_json:
        say(shown(_rows(letters), as_json=True))
        return
    say(shown(_rows(letters), as_json=False, empty="no dead letter is meant"))
    say(f"{len(letters)} {'would be' if dry_run else 'are'} {done}")


def _rows(letters: Sequence[DeadLetter]) -> list[Row]:
    return [
        {
            "message_id": letter.message.message_id,
            "offset_message_id": letter.message.offset_message_id,
            "topic": letter.origin_topic,
            "tag": letter.message.tags,
            "keys": letter.message.keys,
            "tries": letter.message.reconsume_times,
            "lacks": letter.message.properties.get(PROPERTY_LEFT_OUT),
            "dead_since": moment(letter.message.store_timestamp_ms),
            "fate": letter.fate,
            "by": letter.decided_by,
            "why": letter.decided_why,
        }
        for letter in letters
    ]
