"""Converts silences to database rows and back.

Place in the walk: beside `state_rows`, for those who only ask and need nothing of deciding.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec

from engine.foundation.errors import StorageError
from pipelines.alerting.matchers import MatcherFault, matcher_of
from pipelines.alerting.silences import Recurring, Silence
from pipelines.alerting.store import people


def silences_of(kept: Iterable[people.Silence]) -> tuple[list[Silence], list[str]]:
    """Silences that are stored, and what is wrong with those that cannot be understood: by these
    nobody is silenced, and nothing else is held up."""
    understood, faults = [], []
    for one in kept:
        if one.expired_us is not None:
            continue
        try:
            understood.append(silence_of(one))
        except StorageError as error:
            faults.append(str(error))
    return understood, faults


def silence_of(kept: people.Silence) -> Silence:
    """One of them."""
    try:
        body = json.loads(kept.body)
        recurring = body["recurring"]
        return Silence(
            kept.silence_id,
            tuple(matcher_of(text) for text in body["matchers"]),
            kept.from_us,
            kept.to_us,
            kept.author,
            kept.comment,
            None if recurring is None else msgspec.convert(recurring, Recurring),
        )
    except (ValueError, KeyError, TypeError, MatcherFault) as error:
        raise StorageError(f"silence {kept.silence_id} cannot be understood: {error}") from error


def kept_silence(silence: Silence, *, created_us: int) -> people.Silence:
    """A silence as it is stored."""
    recurring = silence.recurring
    body = {
        "matchers": [str(one) for one in silence.matchers],
        "recurring": None if recurring is None else msgspec.to_builtins(recurring),
    }
    return people.Silence(
        silence.silence_id,
        silence.author,
        silence.comment,
        silence.begin_us,
        silence.end_us,
        created_us,
        None,
        json.dumps(body),
    )
