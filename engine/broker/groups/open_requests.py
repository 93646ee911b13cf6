"""Tracks outstanding request-reply exchanges so that a reply reaches only its requester.

It has to come from somebody who could read the question.

Place in the walk: a send that carries REPLY_TO_CLIENT and CORRELATION_ID is a question; the reply
names both. The reply itself says nothing of the topic of its question, so that is kept here.

Invariant: an account's questions push out its own older ones, never another's. Absent on purpose:
what was replied; a second reply to a question is as good as the first, and the asker drops it.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

from engine.foundation.limits import QUESTIONS_PER_ACCOUNT_MAX
from engine.protocol.command import RemotingCommand
from engine.protocol.properties import PROPERTY_CORRELATION_ID, PROPERTY_REPLY_TO_CLIENT
from engine.remoting.gate import Gate


class Questions:
    """The newest questions of each account."""

    def __init__(self, per_account_max: int = QUESTIONS_PER_ACCOUNT_MAX) -> None:
        self._per_account_max = per_account_max
        self._topics: dict[str, dict[bytes, str]] = {}

    def note(self, account: str, client_id: str, correlation_id: str, topic: str) -> None:
        """A client of the account has asked in a topic."""
        asked, name = self._topics.setdefault(account, {}), _name(client_id, correlation_id)
        asked.pop(name, None)
        asked[name] = topic
        if len(asked) > self._per_account_max:
            del asked[next(iter(asked))]

    def topic_of(self, account: str, client_id: str, correlation_id: str) -> str | None:
        """Where the question was asked; None when it was not, or too many came after it."""
        return self._topics.get(account, {}).get(_name(client_id, correlation_id))


class QuestionNotes:
    """Notes the questions among the messages that producers send."""

    def __init__(self, *, gate: Gate, questions: Questions) -> None:
        self._gate = gate
        self._questions = questions

    def note(self, request: RemotingCommand, topic: str, properties: Mapping[str, str]) -> None:
        """A message was stored that wants a reply: who reads its topic may give one."""
        account = self._gate.account_of(request)
        if account is not None:
            asker, correlation_id = (
                properties.get(name, "")
                for name in (PROPERTY_REPLY_TO_CLIENT, PROPERTY_CORRELATION_ID)
            )
            self._questions.note(account, asker, correlation_id, topic)


def _name(client_id: str, correlation_id: str) -> bytes:
    """As short as any other, however long the words are that a client chose."""
    words = f"{client_id}\0{correlation_id}".encode("utf-8", "surrogatepass")
    return blake2b(words, digest_size=16).digest()
