"""Sentences that explain why a group is behind, with figures and a suggested remedy.

Place in the walk: figures of `pipelines/marts/causes` → gold lag_causes, column `evidence`, which
pages, alerts and `tm.why` show as it is. Pure. Invariant: the first sentence names the group and
what is wrong with it; what is not known is left out. Absent on purpose: the rules by which a cause
is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipelines.base.wording import plural
from pipelines.sentences.figures import client, clock, listed, messages, of_all, span, was, whole

HEADLINE_MAX: Final = 200
"""Characters of the first sentence, of names of usual length."""
ADVICE: Final[Mapping[str, str]] = {
    "UNKNOWN": "see the logs of its clients",
    "PAUSED": "have the application resume, unless it is paused on purpose",
    "NO_MEMBERS": "start its consumers",
    "LISTENERS_SATURATED": "add consumers or listeners, or see what the calls wait for",
    "SLOW_LISTENER": "see what the calls wait for, and what was released lately",
    "FLOW_CONTROL_COUNT": "see why its listeners do not keep up with what is pulled",
    "FLOW_CONTROL_BYTES": "see why its listeners do not keep up with what is pulled",
    "FLOW_CONTROL_SPAN": "see where the listener of that message stands",
    "HOT_QUEUE": "have producers spread what they send over all queues",
    "LAGGING_QUEUE": "see what the reader of it waits for",
    "HOT_KEY": "see whether its messages need an order, or whether the key can be divided",
    "FEWER_QUEUES_THAN_MEMBERS": "give the topic more queues, or stop members that have none",
    "MEMBERS_WITHOUT_QUEUES": "see whether all members subscribe alike",
    "RETRIES": "see in its own log, and by `tm.dead_letters`, what its listeners fail with",
    "BURST": "wait until it is read, or add consumers",
    "COLD_READS": "add consumers, or wait until the group is near the end again",
    "INVISIBLE_TIMES_RUN_OUT": "see why its consumers do not acknowledge in time, or have them ask "
    "for a longer invisible time",
    "REBALANCE_FLAPPING": "see why that client comes and goes: crashes, long pauses, heartbeats",
}
"""What to do, by cause."""
ADVICE_OF_SILENCE: Final = "see whether the broker runs, and what ships its facts"
WHY_PULLS_REST: Final[Mapping[str, str]] = {
    "COUNT": "its clients hold too many messages",
    "BYTES": "its clients hold too many bytes",
    "SPAN": "too much lies beyond an unfinished message",
}
Row = Mapping[str, Any]


def none(group: str) -> str:
    """That the group is behind no more."""
    return whole(f"group {group} is behind by no more than is allowed")


def paused(group: str, suspended: Sequence[str], members: int) -> str:
    """Members that their application suspended."""
    names = listed([client(one) for one in suspended])
    return whole(
        f"group {group} is paused: its application has suspended "
        f"{of_all(len(suspended), members, 'member')}, {names}",
        ADVICE["PAUSED"],
    )


def no_members(group: str, broker: str, left_us: int | None) -> str:
    """That nobody consumes, and since when."""
    since = "" if left_us is None else f"; its last member left at {clock(left_us)}"
    return whole(
        f"nobody consumes group {group}: it has no member on {broker}{since}", ADVICE["NO_MEMBERS"]
    )


def listeners_saturated(group: str, stats: Row, *, full: int, members: int) -> str:
    """Listeners of which none is free; `stats`: of the fullest member."""
    slots, mean_us = stats["listeners"], stats["consume_us_mean"]
    at_most = ""
    if mean_us:
        a_minute = slots * 60_000_000 // mean_us
        at_most = (
            f"a call takes {_length(mean_us)} on average, so that client makes at most "
            f"{a_minute:,} calls a minute"
        )
    so_are = ""
    if members > 1:
        so_are = f"{of_all(full, members, 'member')} {'is' if full == 1 else 'are'} as full"
    at_work = f"all {slots:,} listeners" if slots > 1 else "the only listener"
    return whole(
        f"group {group} has no free listener: {at_work} of {client(stats['client_id'])} "
        f"{'are' if slots > 1 else 'is'} at work and {_waits(stats['listeners_queued'])}",
        "; ".join(one for one in (at_most, so_are) if one),
        ADVICE["LISTENERS_SATURATED"],
    )


def slow_listener(
    group: str, client_id: str, topic: str, *, now_ms: int, calm_ms: int, is_p99: bool
) -> str:
    """Listener calls that take longer than they did."""
    calls = f"the listener calls of {client(client_id)} for {topic} took"
    took = f"99 % of {calls} up to {now_ms:,} ms" if is_p99 else f"{calls} {now_ms:,} ms on average"
    return whole(
        f"group {group} is slower than it was: {took} in the last minute, and "
        f"{calm_ms:,} ms before the group fell behind",
        ADVICE["SLOW_LISTENER"],
    )


def flow_control(
    group: str, kind: str, client_id: str, topic: str, *, rested_ms: int, standing: str = ""
) -> str:
    """Pulls that rest; `standing`: the queue whose head they wait for (`not_pulled`)."""
    return whole(
        f"group {group} pulls less than it could: {WHY_PULLS_REST[kind]}",
        standing,
        f"pulls rested for {rested_ms / 1000:,.1f} s of the last minute, summed over the queues, "
        f"those of {client(client_id)} for {topic} longest",
        ADVICE[f"FLOW_CONTROL_{kind}"],
    )


def not_pulled(row: Row, *, age_us: int | None, behind: int, others: int) -> str:
    """A queue of which a client pulls no more until it has finished the message at its head;
    `age_us`: how long that has been in its listener, `others`: further queues.
    """
    head = f"offset {row['first_held']}"
    if age_us is None:
        head += " waits for another try"
    else:
        head += f" has been in a listener of {client(row['client_id'])} for {span(age_us)}"
    count = f"{messages(behind)} behind it {'is' if behind == 1 else 'are'} finished or held"
    also = (
        f"; {plural(others, 'more queue')} {'stands' if others == 1 else 'stand'} like it"
        if others
        else ""
    )
    where = f"queue {row['queue_id']} of {row['topic']}"
    return f"{where} is not pulled: {head}, and {count} (queue_span_max){also}"


def skewed_queue(
    group: str,
    topic: str,
    queue_ids: Sequence[int],
    *,
    queues: int,
    lag: int,
    share: int,
    sent: str,
    is_hot: bool,
    is_part: bool = False,
) -> str:
    """Queues that have most of the lag; `sent`: what they were given (`was_given`)."""
    many = len(queue_ids) > 1
    names = listed([str(one) for one in queue_ids])
    place = f"queue{'s' if many else ''} {names} of {topic}"
    what = "are sent the most" if many else "is sent the most"
    head = f"is behind on {place}, which {what}" if is_hot else f"is behind on {place}"
    fair = 100 * len(queue_ids) / queues
    return whole(
        f"group {group} {head}: {messages(lag)} wait{'s' if lag == 1 else ''} there",
        f"that is {share} % of the topic's {_lag(is_part)} beyond its allowance; {sent}; "
        f"{'their' if many else 'its'} fair part of {plural(queues, 'queue')} is {_fine(fair)} %",
        ADVICE["HOT_QUEUE" if is_hot else "LAGGING_QUEUE"],
    )


def was_given(part: int | None, *, queues: int, was_hot: bool, is_known_long_enough: bool) -> str:
    """What queues got of what was sent to their topic."""
    if not is_known_long_enough:
        return "what was sent is not known for long enough"
    if part is None:
        return "nothing was sent lately" + (", and most to it before" if was_hot else "")
    return f"{'they were' if queues > 1 else 'it was'} given {part} % of what was sent"


def hot_key(group: str, window: Row, *, share: int, is_part: bool = False) -> str:
    """A key that most of what waits has; `window`: what a client holds of one queue."""
    of_it, keyed = window["top_key_messages"], window["keyed_messages"]
    have = "has" if of_it == 1 else "have"
    return whole(
        f"group {group} waits for one key of {window['topic']}, {window['top_key']}: {of_it:,} of "
        f"{messages(keyed)} that {client(window['client_id'])} holds of queue "
        f"{window['queue_id']} {have} it",
        f"that is some {share} % of the topic's {_lag(is_part)} beyond its allowance",
        ADVICE["HOT_KEY"],
    )


def fewer_queues(
    group: str, topic: str, idle: Sequence[str], *, queues: int, members: int, others: Sequence[str]
) -> str:
    """Members that a topic has too few queues for; `others`: topics of which it is so too."""
    return whole(
        f"group {group} has {plural(members, 'member')} for {plural(queues, 'queue')} of {topic}: "
        f"{len(idle):,} {'has' if len(idle) == 1 else 'have'} nothing to do, {_clients(idle)}",
        _also(others),
        ADVICE["FEWER_QUEUES_THAN_MEMBERS"],
    )


def left_out(
    group: str, topic: str, idle: Sequence[str], *, queues: int, members: int, others: Sequence[str]
) -> str:
    """Members that hold no queue though there are enough; `queues`: 0 when that is not known."""
    has = f"the topic has {plural(queues, 'queue')}" if queues else ""
    return whole(
        f"group {group} leaves {of_all(len(idle), members, 'member')} without a queue of {topic}: "
        f"{_clients(idle)}",
        "; ".join(one for one in (has, _also(others)) if one),
        ADVICE["MEMBERS_WITHOUT_QUEUES"],
    )


def retries(group: str, *, retried: int, consumed: int, span_us: int, failed: int) -> str:
    """Retries that take the listeners' time; `failed`: messages a minute, 0: not known."""
    fails = f"its listeners fail {messages(failed)} a minute" if failed else ""
    return whole(
        f"group {group} is busy with messages that failed: {retried:,} of {messages(consumed)} it "
        f"consumed in {span(span_us)} {was(retried)} retries",
        fails,
        ADVICE["RETRIES"],
    )


def invisible_times(group: str, *, came_back: int, consumed: int, span_us: int) -> str:
    """Messages that a POP group is handed again, as nobody acknowledged them in time."""
    return whole(
        f"group {group} is busy with messages that it got before: {came_back:,} of "
        f"{messages(consumed)} it was handed in {span(span_us)} came back unacknowledged",
        "their invisible time ran out",
        ADVICE["INVISIBLE_TIMES_RUN_OUT"],
    )


def burst(
    group: str, *, most: int, usual: int, slot_us: int, begin_us: int, beyond: int, span_us: int
) -> str:
    """A burst: what was sent in the fullest slot, what is usual, and what went beyond it in all."""
    return whole(
        f"group {group} was sent a burst: {messages(most)} in the {span(slot_us)} from "
        f"{clock(begin_us)}, where {messages(usual)} {'is' if usual == 1 else 'are'} usual",
        f"{messages(beyond)} beyond what is usual came in {span(span_us)}",
        ADVICE["BURST"],
    )


def cold_reads(group: str, reads: Row) -> str:
    """Reads of what the broker has no more in memory."""
    few, fetched = "", reads["disk_read_bytes"]
    if reads["behind_bytes_max"] > reads["resident_bytes"]:
        few = (
            f" of at most {messages(reads['messages_a_pull_max'])}, as the broker is configured to "
            f"do from {reads['resident_bytes']:,} bytes behind on"
        )
    of_disk = "" if fetched is None else f"; it read {fetched:,} bytes from disk meanwhile"
    return whole(
        f"group {group} reads {reads['topic']} from disk: {messages(reads['messages'])} lay up to "
        f"{reads['behind_bytes_max']:,} bytes behind the end of the log",
        f"the broker sent {reads['size_bytes']:,} bytes in {plural(reads['pulls'], 'answer')}"
        f"{few}{of_disk}",
        ADVICE["COLD_READS"],
    )


def flapping(
    group: str, *, changes: int, span_us: int, joined: Counter[str], left: Counter[str]
) -> str:
    """Members that come and go."""
    return whole(
        f"group {group} divides its queues over and over: its members changed "
        f"{plural(changes, 'time')} in {span(span_us)}",
        f"it was joined by {_counted(joined)}, and left by {_counted(left)}",
        ADVICE["REBALANCE_FLAPPING"],
    )


def unknown(group: str, broker: str, why: str, figures: str = "") -> str:
    """That no cause is known: `why`."""
    return whole(_unknown(group, broker, why), figures, ADVICE["UNKNOWN"])


def silent(group: str, broker: str, why: str) -> str:
    """That nothing is known of any group of a broker: `why`."""
    return whole(_unknown(group, broker, why), ADVICE_OF_SILENCE)


def _unknown(group: str, broker: str, why: str) -> str:
    return f"why group {group} is behind on {broker} is unknown: {why}"


NO_MEMBER_REPORTS: Final = "no member reports how its listeners work"
FOREIGN_CLIENTS: Final = (
    "its clients, which are not Tidemark's, report neither how many listeners are at work nor why "
    "pulls rest"
)
NO_RULE_FINDS: Final = "no rule finds a cause"


def at_work(*, busy: int, slots: int, sent: int, consumed: int, span_us: int) -> str:
    """How a group works of which no rule finds why it is behind."""
    return (
        f"{busy:,} of {plural(slots, 'listener')} {'is' if busy == 1 else 'are'} at work and pulls "
        f"do not rest; in {span(span_us)} {messages(sent)} {was(sent)} sent and {consumed:,} "
        "consumed"
    )


def held_at(evidence: str, at_us: int) -> str:
    """A cause that does not hold any more at the tick, and when it did last."""
    return whole(evidence, f"it was so at {clock(at_us)}")


def shown(row: Row) -> str:
    """One row of lag_causes. That queues stand still is said in the words in which it was seen
    first, the figures in them with it.
    """
    first = "This was seen first: " if row["cause"] == "STANDING_QUEUES" else ""
    return f"{first}{row['evidence']}"


def _waits(batches: int) -> str:
    return "1 batch waits for one" if batches == 1 else f"{batches:,} batches wait for one"


def _clients(ids: Sequence[str]) -> str:
    return listed([client(one) for one in ids])


def _lag(is_part: bool) -> str:
    return "known lag, which is not that of all queues," if is_part else "lag"


def _also(topics: Sequence[str]) -> str:
    return f"the same holds for {listed(topics)}" if topics else ""


def _counted(names: Counter[str]) -> str:
    said = [
        f"{client(name)} ({count:,} times)" if count > 1 else client(name)
        for name, count in names.most_common()
    ]
    return listed(said) if said else "nobody"


def _fine(percent: float) -> str:
    return f"{percent:.0f}" if percent >= 1 else f"{percent:.1g}"


def _length(micros: int) -> str:
    return f"{micros // 1000:,} ms" if micros >= 10_000 else f"{micros / 1000:.1f} ms"
