"""Runs Burrow test cases from a file and compares the results with those expected.

Place in the walk: `tidemark evaluate --rules burrow FILE`, and the tests. A file is one object;
each key but `source` and `conventions` is a kind of case, described in docs/burrow.md.

Invariant: every field below a case's `expected` is compared (`note` aside), or the file is refused.
Absent on purpose: files, and a second evaluator: cases go through the same storage, rules and
notifier as facts do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from pipelines.rules.burrow.evaluator import (
    Commit,
    GroupStatus,
    Partition,
    PartitionStatus,
    Status,
    evaluate_group,
    evaluate_partition,
    findings,
)
from pipelines.rules.burrow.notifier import (
    ModuleSettings,
    Notice,
    Notifier,
    Sending,
    decide,
)
from pipelines.rules.burrow.storage import EXPIRE_GROUP_S, Storage, StorageSettings
from pipelines.rules.case_fields import CaseFileError, Fields, shown

INTERVALS_MAX: Final = 10_000
"""Slots of a ring in a case."""
SLOTS_MAX: Final = 1_000_000
"""Slots of all rings of a case together."""
DIFFERENCES_SHOWN: Final = 3
"""Fields that differ, in the line of one case."""
NOW_S: Final = 1_700_000_000
"""Evaluation time of cases whose times are relative to it."""
_SHARE_TOLERANCE: Final = 1e-6
_GROUP: Final = "group"
_TOPIC: Final = "topic"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case, compared."""

    name: str
    expected: str
    """The answer in a word or two."""
    got: str
    differences: tuple[str, ...]
    """Each field that differs, with both values; none: equal."""

    def __str__(self) -> str:
        verdict = "ok"
        if self.differences:
            more = len(self.differences) - DIFFERENCES_SHOWN
            listed = "; ".join(self.differences[:DIFFERENCES_SHOWN])
            verdict = f"DIFFERENT  {listed}" + (f"; and {more} more" if more > 0 else "")
        answers = f"expected {self.expected:<12} got {self.got:<12}"
        return f"{self.name:<48}  {answers} {verdict}"


def run_cases(file: Fields) -> Iterator[CaseResult]:
    """Run every case of the file, in its order."""
    kinds = [name for name in file.values if name not in ("source", "conventions")]
    ran = 0
    for kind in kinds:
        if kind not in RUNNERS:
            raise CaseFileError(
                file.place,
                f"{shown(kind)} is not a kind of case",
                f"known kinds are {', '.join(RUNNERS)}",
            )
        for result in RUNNERS[kind](file, kind):
            ran += 1
            yield result
    if not ran:
        raise CaseFileError(file.place, "holds no case", f"known kinds are {', '.join(RUNNERS)}")


def _partition_cases(file: Fields, kind: str) -> Iterator[CaseResult]:
    for case in file.objects(kind):
        yield _partition_case(case, kind)


def _weakness_probes(file: Fields, kind: str) -> Iterator[CaseResult]:
    probes = file.member(kind)
    probes.only("cases", "note")
    for case in probes.objects("cases"):
        yield _partition_case(case, kind)


def _partition_case(case: Fields, kind: str) -> CaseResult:
    case.only(
        *("id", "note", "allowed_lag", "broker_offsets", "current_lag", "expected"),
        *("minimum_complete", "now_s", "offsets", "ring_size"),
    )
    slots = _slots(case)
    allowed_lag = case.whole("allowed_lag", least=0)
    partition = Partition(
        slots=slots,
        end_offsets=tuple(case.wholes("broker_offsets")),
        current_lag=case.whole("current_lag", least=0),
    )
    now_s = case.whole("now_s")
    judged = evaluate_partition(
        partition,
        now_s=now_s,
        allowed_lag=allowed_lag,
        minimum_complete=case.share("minimum_complete", default=0.0),
    )
    got: dict[str, Any] = {"status": judged.status.name, "complete": judged.complete}
    if partition.commits:
        found = findings(
            partition.commits, partition.end_offsets, now_s=now_s, allowed_lag=allowed_lag
        )
        rules = asdict(found)
        rules.pop("rewind_recovered")
        rules["rewind_index"] = -1 if found.rewind_index is None else found.rewind_index
        got["rules"] = rules
    return _compared(case, kind, got, in_short="status")


def _slots(case: Fields) -> tuple[Commit | None, ...]:
    slots: list[Commit | None] = []
    for index, value in enumerate(case.items("offsets")):
        place = f"{case.place}.offsets[{index}]"
        if value is None:
            if slots and slots[-1] is not None:
                raise CaseFileError(place, "is null after a commit", "empty slots come first")
            slots.append(None)
        elif isinstance(value, dict):
            slots.append(_commit(Fields(value, place)))
        else:
            raise CaseFileError(place, f"is {shown(value)}", "it must be a commit or null")
    if not slots:
        raise CaseFileError(f"{case.place}.offsets", "is empty", "a ring has one slot at least")
    if "ring_size" in case and case.whole("ring_size") != len(slots):
        raise CaseFileError(
            f"{case.place}.ring_size",
            f"is {case.whole('ring_size')} and `offsets` has {len(slots)} entries",
            "give one entry for each slot, null for an empty one",
        )
    return tuple(slots)


def _commit(fields: Fields) -> Commit:
    fields.only("offset", "order", "timestamp_ms", "lag")
    return Commit(
        offset=fields.whole("offset"),
        order=fields.whole("order"),
        timestamp_ms=fields.whole("timestamp_ms"),
        lag=fields.whole_or_null("lag"),
    )


def _storage_ring_cases(file: Fields, kind: str) -> Iterator[CaseResult]:
    shared = file.member(kind)
    shared.only("cases", "intervals", "min_distance_s", "note")
    settings = StorageSettings(
        intervals=shared.whole("intervals", least=1, most=INTERVALS_MAX),
        min_distance_s=shared.whole("min_distance_s", least=0),
    )
    for case in shared.objects("cases"):
        case.only("id", "note", "broker_offset", "inputs", "expected")
        yield _ring_case(case, kind, settings)


def _storage_other_cases(file: Fields, kind: str) -> Iterator[CaseResult]:
    for case in file.objects(kind):
        case.only(
            *("id", "note", "broker_offset", "intervals", "min_distance_s", "inputs", "expected"),
            *("expected_current_lag", "expected_group_exists", "expire_group_s"),
        )
        if "inputs" in case:
            settings = StorageSettings(
                intervals=case.whole("intervals", default=10, least=1, most=INTERVALS_MAX),
                min_distance_s=case.whole("min_distance_s", default=0, least=0),
            )
            yield _ring_case(case, kind, settings)
        else:
            yield _absence_case(case, kind)


def _ring_case(case: Fields, kind: str, settings: StorageSettings) -> CaseResult:
    storage = Storage(settings)
    end_offset = case.whole("broker_offset")
    storage.add_end_offset(_TOPIC, 0, offset=end_offset, partition_count=1)
    for commit in case.objects("inputs"):
        commit.only("offset", "order", "timestamp_ms", "lag")
        storage.add_commit(
            *(_GROUP, _TOPIC, 0),
            offset=commit.whole("offset"),
            order=commit.whole("order"),
            timestamp_ms=commit.whole("timestamp_ms"),
            now_s=0,
        )
    partitions = storage.fetch(_GROUP, now_s=0) or {}
    partition = partitions.get((_TOPIC, 0))
    commits = [asdict(commit) for commit in partition.commits] if partition else []
    differences = list(_differences(case.items("expected"), commits, f"{case.place}.expected"))
    if "expected_current_lag" in case:
        lag = partition.current_lag if partition else None
        differences += _differences(case.whole("expected_current_lag"), lag, "current_lag")
    return CaseResult(
        name=_name(case, kind),
        expected=f"{len(case.items('expected'))} commits",
        got=f"{len(commits)} commits",
        differences=tuple(differences),
    )


def _absence_case(case: Fields, kind: str) -> CaseResult:
    """A group that must not be there: its only commit is too old for storage (`expire_group_s` and
    `expected_group_exists`), has become so since (`expire_group_s` and `expected`), or is of a
    topic without an end offset (`expected_group_exists` alone).
    """
    expire_s = case.whole("expire_group_s", default=EXPIRE_GROUP_S, least=1, most=NOW_S)
    storage = Storage(StorageSettings(expire_group_s=expire_s))
    has_expired = "expected" in case and "expire_group_s" in case
    if not has_expired:
        wanted = case.flag("expected_group_exists")
    elif case.get("expected") is None:
        wanted = False
    else:
        raise CaseFileError(
            f"{case.place}.expected",
            f"is {shown(case.get('expected'))}",
            "it must be null, or the case must have `inputs`",
        )
    if "expire_group_s" in case:
        storage.add_end_offset(_TOPIC, 0, offset=1, partition_count=1)
    timestamp_ms = (NOW_S - expire_s) * 1000 - (1 if "expire_group_s" in case else 0)
    stored_at_s = NOW_S - 1 if has_expired else NOW_S
    storage.add_commit(
        *(_GROUP, _TOPIC, 0), offset=0, order=1, timestamp_ms=timestamp_ms, now_s=stored_at_s
    )
    was_stored = _GROUP in storage.groups
    if has_expired:
        assert was_stored
        storage.fetch(_GROUP, now_s=NOW_S)
    words = {True: "group exists", False: "no group"}
    found = _GROUP in storage.groups
    return CaseResult(
        name=_name(case, kind),
        expected=words[wanted],
        got=words[found],
        differences=tuple(_differences(wanted, found, "group exists")),
    )


def _group_cases(file: Fields, kind: str) -> Iterator[CaseResult]:
    for case in file.objects(kind):
        case.only(
            *("id", "note", "cluster", "group", "show_all", "intervals", "min_distance_s"),
            *("minimum_complete", "allowed_lag", "topic_partition_count", "events", "expected"),
            *("now_rel_ms", "expire_group_s"),
        )
        yield _group_case(case, kind)


def _group_case(case: Fields, kind: str) -> CaseResult:
    group = case.word("group", default=_GROUP)
    now_ms = NOW_S * 1000 + case.whole("now_rel_ms", default=0)
    storage = Storage(
        StorageSettings(
            intervals=case.whole("intervals", least=1, most=INTERVALS_MAX),
            min_distance_s=case.whole("min_distance_s", least=0),
            expire_group_s=case.whole("expire_group_s", default=EXPIRE_GROUP_S, least=0),
        )
    )
    _play(case, storage, group, now_ms)
    judged = evaluate_group(
        storage.fetch(group, now_s=now_ms // 1000),
        now_s=now_ms // 1000,
        allowed_lag=case.whole("allowed_lag", least=0),
        minimum_complete=case.share("minimum_complete"),
    )
    got = _group_answer(judged, show_all=case.flag("show_all", default=True))
    return _compared(case, kind, got, in_short="status")


def _play(case: Fields, storage: Storage, group: str, now_ms: int) -> None:
    count = case.whole("topic_partition_count", least=1, most=SLOTS_MAX)
    topics = set()
    for event in case.objects("events"):
        event.only(
            *("type", "topic", "group", "partition", "offset", "order", "timestamp_ms_rel_now"),
            *("at_ms_rel_now", "owner", "client_id", "groups"),
        )
        topic = event.word("topic", default=_TOPIC)
        topics.add(topic)
        if len(topics) * count * storage.settings.intervals > SLOTS_MAX:
            raise CaseFileError(
                case.place,
                "has too many slots: topics x topic_partition_count x intervals",
                f"keep them to {SLOTS_MAX} in all",
            )
        committer = event.word("group", default=group)
        match event.word("type"):
            case "broker":
                storage.add_end_offset(
                    topic,
                    event.whole("partition", least=0, most=count - 1),
                    offset=event.whole("offset"),
                    partition_count=count,
                )
            case "commit":
                at_ms = now_ms + event.whole("at_ms_rel_now", default=0)
                storage.add_commit(
                    *(committer, topic, event.whole("partition")),
                    offset=event.whole("offset"),
                    order=event.whole("order"),
                    timestamp_ms=NOW_S * 1000 + event.whole("timestamp_ms_rel_now"),
                    now_s=at_ms // 1000,
                )
            case "owner":
                storage.set_owner(
                    *(committer, topic, event.whole("partition")),
                    owner=event.word("owner"),
                    client_id=event.word("client_id", default=""),
                )
            case "clear_owners":
                storage.clear_owners(committer)
            case "delete_topic":
                storage.delete_topic(topic)
            case "delete_group":
                storage.delete_group(committer)
            case "fetch":
                at_ms = now_ms + event.whole("at_ms_rel_now", default=0)
                storage.is_known(committer, now_s=at_ms // 1000)
            case "reap":
                storage.reap({name for name in event.items("groups") if isinstance(name, str)})
            case other:
                raise CaseFileError(
                    f"{event.place}.type",
                    f"is {shown(other)}",
                    "it must be broker, commit, owner, clear_owners, delete_topic, delete_group, "
                    "fetch or reap",
                )


def _group_answer(judged: GroupStatus, *, show_all: bool) -> dict[str, Any]:
    listed = judged.shown(show_all=show_all)
    worst = judged.partitions[judged.max_lag] if judged.max_lag else None
    return {
        "status": judged.status.name,
        "complete": judged.complete,
        "partition_count": len(judged.partitions),
        "total_lag": judged.total_lag,
        "partitions_returned": len(listed),
        "partitions": [_partition_answer(key, one) for key, one in listed.items()],
        "maxlag_partition": judged.max_lag[1] if judged.max_lag else None,
        "maxlag_current_lag": worst.current_lag if worst else None,
        "maxlag": {
            "start_offset": worst.start.offset if worst and worst.start else None,
            "end_offset": worst.end.offset if worst and worst.end else None,
        },
    }


def _partition_answer(key: tuple[str, int], one: PartitionStatus) -> dict[str, Any]:
    return {
        "topic": key[0],
        "partition": key[1],
        "status": one.status.name,
        "complete": one.complete,
        "current_lag": one.current_lag,
        "start": _relative(one.start),
        "end": _relative(one.end),
    }


def _relative(commit: Commit | None) -> dict[str, Any] | None:
    if commit is None:
        return None
    return {**asdict(commit), "timestamp_ms": commit.timestamp_ms - NOW_S * 1000}


def _notifier_cases(file: Fields, kind: str) -> Iterator[CaseResult]:
    """One evaluation of one group by one module, the send interval gone."""
    shared = file.member(kind)
    shared.only("cases", "threshold_codes", "note")
    for case in shared.objects("cases"):
        case.only(
            *("id", "note", "threshold", "status", "existing_incident", "send_close"),
            *("send_once", "previously_notified", "expected"),
        )
        module = ModuleSettings(
            "module",
            threshold=_status(case, "threshold"),
            send_interval_s=1,
            send_close=case.flag("send_close"),
            send_once=case.flag("send_once"),
        )
        status = _status(case, "status")
        notifier = _notifier(module)
        if case.flag("existing_incident"):
            notifier.evaluated(_KEY, Status.WARN, now_ms=0)
        notifier.evaluated(_KEY, status, now_ms=_LATER_MS)
        sending = decide(
            module,
            status,
            has_incident=case.flag("existing_incident") or status > Status.OK,
            notified_ms=0 if case.flag("previously_notified") else None,
            now_ms=_LATER_MS,
        )
        got = {
            "send": sending is not Sending.NOTHING,
            "is_close": sending is Sending.CLOSE,
            "incident_open_after": notifier.incident(_KEY) is not None,
        }
        compared = _compared(case, kind, got, in_short="send")
        yield CaseResult(
            name=compared.name,
            expected=_sent(_expectation(case, "send"), _expectation(case, "is_close")),
            got=sending.value,
            differences=compared.differences,
        )


def _expectation(case: Fields, name: str) -> bool:
    return case.member("expected").flag(name)


def _sent(send: bool, is_close: bool) -> str:
    sending = Sending.NOTHING if not send else Sending.CLOSE if is_close else Sending.OPEN
    return sending.value


def _notifier_probes(file: Fields, kind: str) -> Iterator[CaseResult]:
    """One group's statuses, one after another, and what one module sends for each."""
    shared = file.member(kind)
    shared.only("cases", "threshold", "send_interval_s", "sequence", "note")
    statuses = [
        _status(Fields({"status": value}, f"{shared.place}.sequence[{index}]"), "status")
        for index, value in enumerate(shared.items("sequence"))
    ]
    for index, case in enumerate(shared.objects("cases")):
        case.only("id", "note", "send_close", "send_once", "sent")
        module = ModuleSettings(
            "module",
            threshold=_status(shared, "threshold"),
            send_interval_s=shared.whole("send_interval_s", least=0, most=10**9),
            send_close=case.flag("send_close"),
            send_once=case.flag("send_once"),
        )
        notifier = _notifier(module)
        step_ms = module.pause_ms + 1
        got = [
            _word(notifier.evaluated(_KEY, status, now_ms=number * step_ms))
            for number, status in enumerate(statuses, start=1)
        ]
        expected = case.items("sent")
        yield CaseResult(
            name=_name(case, kind) if "id" in case else f"{kind}[{index}]",
            expected=",".join(str(word or "-") for word in expected if word in _WORDS),
            got=",".join(word or "-" for word in got),
            differences=tuple(_differences(expected, got, f"{case.place}.sent")),
        )


_WORDS: Final = ("open", "close", None)
_KEY: Final = ("cluster", _GROUP)
_LATER_MS: Final = 1_000_000
"""Past every send interval that begins at 0."""


def _notifier(module: ModuleSettings) -> Notifier:
    notifier = Notifier([module], new_id=lambda: "incident")
    notifier.refresh([_KEY], last_evaluated_ms=0)
    return notifier


def _word(sent: list[Notice]) -> str | None:
    return sent[0].sending.value if sent else None


def _status(fields: Fields, name: str) -> Status:
    value = fields.get(name)
    known = {status.name: status for status in Status} | {int(status): status for status in Status}
    if isinstance(value, bool) or not isinstance(value, str | int) or value not in known:
        names = ", ".join(f"{status.name} ({int(status)})" for status in Status)
        raise CaseFileError(f"{fields.place}.{name}", f"is {shown(value)}", f"it must be {names}")
    return known[value]


def _compared(case: Fields, kind: str, got: dict[str, Any], *, in_short: str) -> CaseResult:
    """The case compared; the field `in_short` stands for the whole answer in its line."""
    expected = case.member("expected")
    if not expected.values.keys() - {"note"}:
        raise CaseFileError(expected.place, "compares nothing", f"give one of {', '.join(got)}")
    if "status" in expected:
        _status(expected, "status")
    return CaseResult(
        name=_name(case, kind),
        expected=shown(expected.values.get(in_short, "-")).strip("'"),
        got=str(got[in_short]),
        differences=tuple(_differences(expected.values, got, expected.place)),
    )


def _differences(expected: Any, got: Any, place: str) -> Iterator[str]:
    """Fields of `expected` that are otherwise in `got`; what is not expected is not compared."""
    if isinstance(expected, dict) and isinstance(got, dict):
        for name, value in expected.items():
            if name == "note":
                continue
            if name not in got:
                raise CaseFileError(
                    place,
                    f"{shown(name)} is not a field that is compared",
                    f"known are {', '.join(got)}",
                )
            yield from _differences(value, got[name], f"{place}.{name}")
    elif isinstance(expected, list) and isinstance(got, list):
        if len(expected) != len(got):
            yield f"{place}: expected {len(expected)} entries, got {len(got)}"
        for index, (left, right) in enumerate(zip(expected, got, strict=False)):
            yield from _differences(left, right, f"{place}[{index}]")
    elif not _equal(expected, got):
        yield f"{place}: expected {shown(expected)}, got {shown(got)}"


def _equal(expected: Any, got: Any) -> bool:
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    if isinstance(expected, int | float) and isinstance(got, float):
        return abs(expected - got) <= _SHARE_TOLERANCE
    return bool(expected == got)


def _name(case: Fields, kind: str) -> str:
    return f"{kind} {case.number_or_name('id')}"


RUNNERS: Final[dict[str, Callable[[Fields, str], Iterator[CaseResult]]]] = {
    "partition_cases": _partition_cases,
    "group_cases": _group_cases,
    "storage_ring_cases": _storage_ring_cases,
    "storage_other_cases": _storage_other_cases,
    "notifier_cases": _notifier_cases,
    "notifier_probes": _notifier_probes,
    "weakness_probes": _weakness_probes,
}
"""Kind of case -> how its cases are run."""
