"""Version 2 heartbeats: subscriptions are not sent again to a broker that has them. Pure.

Place in the walk: between what a client says of itself and what leaves for each broker. A heartbeat
carries a fingerprint of the subscriptions; a broker that took them in full and found no other
fingerprint in the group gets the short form from then on.

    full ──▶ IS_SUPPORT_HEART_BEAT_V2, not IS_SUB_CHANGE ──▶ short ──▶ IS_SUB_CHANGE ──▶ full

Invariant: the short form goes only to a broker that took this very fingerprint on a connection that
has lasted since. RocketMQ 5.5 lets a broker that has restarted go on without the subscriptions;
here the end of the connection is enough to send them all again. Absent on purpose: timers and
requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from engine.protocol.bodies import HeartbeatData
from engine.protocol.hashes import java_hash
from engine.protocol.headers import HeartbeatResponseHeader


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat in both forms."""

    fingerprint: int
    """0: version 1, which has no short form."""
    full: bytes
    short: bytes


def first_version(data: HeartbeatData) -> Beat:
    """The form of clients that know no other."""
    full = data.encode()
    return Beat(0, full, full)


def second_version(data: HeartbeatData) -> Beat:
    """With the fingerprint; versions of subscriptions and the client's own id are not part of it,
    so that members that subscribe alike have the same.
    """
    consumers = data.consumer_data_set
    alike = [
        replace(
            consumer,
            subscription_data_set=[
                replace(subscription, sub_version=0)
                for subscription in consumer.subscription_data_set
            ],
        )
        for consumer in consumers
    ]
    text = replace(data, client_id="", consumer_data_set=alike).encode().decode()
    fingerprint = java_hash(text) or 1  # 0 would be version 1.
    bare = [replace(consumer, subscription_data_set=[]) for consumer in consumers]
    short = replace(
        data, consumer_data_set=bare, heartbeat_fingerprint=fingerprint, without_sub=True
    )
    return Beat(
        fingerprint, replace(data, heartbeat_fingerprint=fingerprint).encode(), short.encode()
    )


class SentSubscriptions:
    """What each broker has taken of this client's subscriptions."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def form_for(self, address: str, beat: Beat) -> bytes:
        """The form of `beat` that this broker needs."""
        return beat.short if self._taken.get(address) == beat.fingerprint else beat.full

    def answered(self, address: str, beat: Beat, answer: HeartbeatResponseHeader) -> None:
        """The broker has taken it."""
        if beat.fingerprint and answer.heartbeat_v2 and not answer.subscription_changed:
            self._taken[address] = beat.fingerprint
        else:
            self.forget(address)

    def forget(self, address: str) -> None:
        """It is not certain what this broker knows."""
        self._taken.pop(address, None)

    def forget_all(self) -> None:
        """Everybody is to hear everything."""
        self._taken.clear()
