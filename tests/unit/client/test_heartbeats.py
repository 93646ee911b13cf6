"""Row B1: heartbeats of version 2, against brokers that behave as RocketMQ's and may restart."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.client.connection.connection import (
    Beat,
    SentSubscriptions,
    first_version,
    second_version,
)
from engine.protocol.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from engine.protocol.headers import HeartbeatResponseHeader

BROKERS = ("a:10911", "b:10911")
TOPICS = st.sampled_from(("orders", "payments", "refunds"))


def data(*topics: str, client_id: str = "c1", version: int = 1) -> HeartbeatData:
    subscriptions = [SubscriptionData.build(topic, "*", sub_version=version) for topic in topics]
    return HeartbeatData(
        client_id=client_id,
        producer_data_set=[ProducerData("p")],
        consumer_data_set=[ConsumerData("g", subscription_data_set=subscriptions)],
    )


def parts_of(form: bytes) -> tuple[list[str], bool, int]:
    decoded = HeartbeatData.decode(form)
    (consumer,) = decoded.consumer_data_set
    topics = [subscription.topic for subscription in consumer.subscription_data_set]
    return topics, decoded.without_sub, decoded.heartbeat_fingerprint


def test_both_forms_carry_the_fingerprint_and_one_the_subscriptions() -> None:
    beat = second_version(data("orders", "payments"))
    assert beat.fingerprint != 0
    assert parts_of(beat.full) == (["orders", "payments"], False, beat.fingerprint)
    assert parts_of(beat.short) == ([], True, beat.fingerprint)
    assert parts_of(first_version(data("orders")).full) == (["orders"], False, 0)


def test_members_that_subscribe_alike_have_one_fingerprint() -> None:
    beat = second_version(data("orders"))
    other = second_version(data("orders", client_id="c2", version=77))
    assert beat.fingerprint == other.fingerprint
    assert beat.fingerprint != second_version(data("orders", "payments")).fingerprint
    assert -(1 << 31) <= beat.fingerprint < 1 << 31, "a Java int"


def test_a_broker_that_knows_no_version_2_is_sent_all_each_time() -> None:
    subscriptions = SentSubscriptions()
    beat = second_version(data("orders"))
    subscriptions.answered("old:10911", beat, HeartbeatResponseHeader.decode({}))
    assert subscriptions.form_for("old:10911", beat) == beat.full
    yes = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}
    first = first_version(data("orders"))
    subscriptions.answered("new:10911", first, HeartbeatResponseHeader.decode(yes))
    assert subscriptions.form_for("new:10911", beat) == beat.full, "version 1 left nothing behind"


class RealBroker:
    """As RocketMQ 5.5 takes heartbeats of version 2: it compares only fingerprints, and registers
    a member without subscriptions when they are left out.
    """

    def __init__(self) -> None:
        self.fingerprint: int | None = None
        self.topics: list[str] | None = None

    def take(self, form: bytes) -> HeartbeatResponseHeader:
        topics, without_sub, fingerprint = parts_of(form)
        changed = self.fingerprint is not None and self.fingerprint != fingerprint
        self.fingerprint = fingerprint
        if not without_sub:
            self.topics = topics
        return HeartbeatResponseHeader(heartbeat_v2=True, subscription_changed=changed)


class Heartbeats(RuleBasedStateMachine):
    """One client, two brokers, and what happens to them."""

    def __init__(self) -> None:
        super().__init__()
        self.client = SentSubscriptions()
        self.topics = ["orders"]
        self.version = 1
        self.brokers = {address: RealBroker() for address in BROKERS}
        self.heard: dict[str, list[str]] = {}

    def _beat(self) -> Beat:
        return second_version(data(*self.topics, version=self.version))

    @rule(loses=st.sampled_from((None, *BROKERS)))
    def beats(self, loses: str | None) -> None:
        beat = self._beat()
        for address, broker in self.brokers.items():
            form = self.client.form_for(address, beat)
            answer = broker.take(form)
            if form is beat.full or address in self.heard:
                self.heard[address] = list(self.topics)
            if address == loses:
                self.client.forget(address)
            else:
                self.client.answered(address, beat, answer)

    @rule(address=st.sampled_from(BROKERS))
    def restarts(self, address: str) -> None:
        """Its connections end, and it remembers nothing."""
        self.brokers[address] = RealBroker()
        self.heard.pop(address, None)
        self.client.forget(address)

    @rule(address=st.sampled_from(BROKERS), fingerprint=st.integers(1, 3))
    def another_member_beats(self, address: str, fingerprint: int) -> None:
        """It subscribes differently: the group's subscriptions are its own from now on."""
        self.brokers[address].fingerprint = fingerprint
        self.brokers[address].topics = ["what others want"]
        self.heard.pop(address, None)

    @rule()
    def beats_twice(self) -> None:
        """The first is answered that subscriptions changed, the second says them."""
        self.beats(None)
        self.beats(None)
        assert all(broker.topics == self.topics for broker in self.brokers.values())

    @rule(topic=TOPICS)
    def subscribes(self, topic: str) -> None:
        self.version += 1
        self.topics = sorted({*self.topics, topic})

    @rule()
    def holds_other_queues(self) -> None:
        self.version += 1
        self.client.forget_all()
        self.beats(None)
        assert all(broker.topics == self.topics for broker in self.brokers.values())

    @invariant()
    def a_broker_knows_what_it_heard_last(self) -> None:
        for address, topics in self.heard.items():
            assert self.brokers[address].topics == topics


TestHeartbeats = Heartbeats.TestCase
TestHeartbeats.settings = settings(max_examples=40, stateful_step_count=25)
