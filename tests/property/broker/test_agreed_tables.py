"""Row C11: whoever applies a leader's records of tables, some of them twice, holds its tables."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.broker.accounts import AgreedAccounts
from engine.broker.config import BrokerConfig
from engine.broker.groups.group_configs import GroupConfigs, SubscriptionGroupConfig
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.replicating.table_records import TableRecords
from engine.broker.table_changes import TableChanges
from engine.broker.topics.topics import Topics
from engine.protocol import fastjson
from engine.protocol.bodies import TopicConfig
from engine.remoting.access import Access
from engine.remoting.accounts import Account, Accounts
from engine.remoting.gate import Gate
from engine.remoting.signing import Credentials
from engine.store import StoreConfig

FILE = Access(accounts=(Account(Credentials("root", "secret"), admin=True),))
NAMES = ("first", "second")
ENTRY = st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(0, 2))
STEP = st.one_of(
    st.tuples(st.just("topic"), st.sampled_from(NAMES), st.integers(1, 9)),
    st.tuples(st.just("group"), st.sampled_from(NAMES), st.integers(0, 5)),
    st.tuples(st.just("group goes"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("offset"), ENTRY, st.integers(0, 100)),
    st.tuples(st.just("offsets go"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
    st.tuples(st.just("account"), st.sampled_from(NAMES), st.integers(0, 5)),
    st.tuples(st.just("account goes"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("record"), st.none(), st.none()),
)


class Tables:
    """Those of one node."""

    def __init__(self) -> None:
        self.topics = Topics()
        self.groups = GroupConfigs(auto_create=True)
        self.offsets = ConsumerOffsets()
        self.accounts = AgreedAccounts(Gate(Accounts(FILE.accounts)), FILE)
        self.records = TableRecords(
            accounts=self.accounts,
            changes=TableChanges(),
            group_configs=self.groups,
            node=BrokerNode(BrokerConfig(store=StoreConfig(root="/store")), boot_ms=0),
            offsets=self.offsets,
            topics=self.topics,
        )

    def lead(self) -> None:
        self.topics.on_put = self.records.topic_put
        self.groups.on_changed = self.records.group_changed
        self.offsets.on_set = self.records.offset_set
        self.offsets.on_forgotten = self.records.offsets_forgotten
        self.accounts.on_changed = self.records.accounts_changed

    def change(self, what: str, name: object, value: object) -> None:
        match what, name, value:
            case "topic", str(topic), int(queues):
                self.topics.put(
                    TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
                )
            case "group", str(group), int(tries):
                self.groups.put(SubscriptionGroupConfig(group, retry_max_times=tries))
            case "group goes", str(group), _:
                self.groups.delete(group)
            case "offset", (str(group), str(topic), int(queue_id)), int(offset):
                self.offsets.place(group, topic, queue_id, offset)
            case "account", str(account), int(secret):
                self.accounts.put(Account(Credentials(account, f"secret {secret}"), watcher=True))
            case "account goes", str(account), _:
                self.accounts.delete(account)
            case "offsets go", str(group), str(topic):
                self.offsets.forget_pair(group, topic)

    def taken(self) -> list[bytes]:
        """The records of what changed, as bytes."""
        found = []
        while len(self.records):
            found.append(fastjson.dumps(self.records.next_document()))
            self.records.drop_next()
        return found

    @property
    def contents(self) -> object:
        offsets = {
            (topic, group): dict(self.offsets.queues(group, topic))
            for topic, group in self.offsets.pairs()
        }
        return self.topics.table(), self.groups.all(), offsets, self.accounts.all()


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=40), st.data())
def test_a_follower_of_all_records_holds_what_the_leader_does(
    steps: list[tuple[str, object, object]], data: st.DataObject
) -> None:
    leader, follower = Tables(), Tables()
    leader.lead()
    log: list[bytes] = []
    for what, name, value in steps:
        if what == "record":
            log += leader.taken()
        else:
            leader.change(what, name, value)
    log += leader.taken()
    for record in log:
        follower.records.apply(fastjson.loads(record))
    assert follower.contents == leader.contents
    again = data.draw(st.integers(0, len(log)))
    for record in log[again:]:
        follower.records.apply(fastjson.loads(record))
    assert follower.contents == leader.contents
