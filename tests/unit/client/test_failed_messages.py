"""The two ways back for a failed message, and what the copy of the second way carries.

Feature rows: A11, E1.
"""

from __future__ import annotations

from engine.client.config import ConsumerConfig
from engine.client.consuming.failed_messages import FailedMessages, SendBackRequest
from engine.foundation.errors import ConnectionLost, RequestRefused
from engine.protocol.codes import ResponseCode
from engine.protocol.message import Message, MessageExt
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.simulation.world import World
from tests.unit.client.consuming_parts import Q0, Broker, group_state, in_virtual_time
from tests.unit.client.messages import message_at


class Ways:
    """Both ways, each of which may be blocked."""

    def __init__(
        self, *, broker_open: bool = True, copy_open: bool = True, **settings: object
    ) -> None:
        self.broker_open, self.copy_open = broker_open, copy_open
        self.requests: list[SendBackRequest] = []
        self.copies: list[Message] = []
        config = ConsumerConfig(**settings)  # type: ignore[arg-type]
        state = group_state(Broker(), lambda _m, _c: None, config)
        self.failed = FailedMessages(state, self, self._send_copy)

    async def send_back(self, request: SendBackRequest) -> None:
        if not self.broker_open:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "not today")
        self.requests.append(request)

    async def _send_copy(self, message: Message) -> None:
        if not self.copy_open:
            raise ConnectionLost("gone")
        self.copies.append(message)


def failed_message(**properties: str) -> MessageExt:
    return message_at(
        5, 3, properties={"UNIQ_KEY": "K", "TAGS": "A"} | properties, reconsume_times=2
    )


@run_by(in_virtual_time)
async def test_the_broker_lays_its_own_copy_back_when_it_can(
    world: World, runtime: Runtime
) -> None:
    ways = Ways(max_reconsume_times=7)
    assert await ways.failed.send_back(failed_message(), 4, Q0)
    (request,) = ways.requests
    assert (request.delay_level, request.max_reconsume_times) == (4, 7)
    assert (request.group, request.broker_name) == ("g", "broker-a")
    assert not ways.copies


@run_by(in_virtual_time)
async def test_otherwise_a_copy_goes_to_the_retry_topic_one_level_later_each_time(
    world: World, runtime: Runtime
) -> None:
    ways = Ways(broker_open=False)
    assert await ways.failed.send_back(failed_message(TRAN_MSG="true"), 0, Q0)
    (copy,) = ways.copies
    assert (copy.topic, copy.body) == ("%RETRY%g", b"x" * 3)
    assert copy.properties == {
        "UNIQ_KEY": "K",
        "TAGS": "A",
        "ORIGIN_MESSAGE_ID": "K",
        "RETRY_TOPIC": "T",
        "RECONSUME_TIME": "3",
        "MAX_RECONSUME_TIMES": "16",
        "DELAY": "5",
    }


@run_by(in_virtual_time)
async def test_the_id_of_the_first_try_is_kept(world: World, runtime: Runtime) -> None:
    ways = Ways(broker_open=False)
    await ways.failed.send_back(failed_message(ORIGIN_MESSAGE_ID="FIRST"), 0, Q0)
    assert ways.copies[0].properties["ORIGIN_MESSAGE_ID"] == "FIRST"


@run_by(in_virtual_time)
async def test_with_both_ways_blocked_the_message_has_to_stay(
    world: World, runtime: Runtime
) -> None:
    ways = Ways(broker_open=False, copy_open=False)
    assert not await ways.failed.send_back(failed_message(), 0, Q0)


@run_by(in_virtual_time)
async def test_a_copy_without_room_for_all_properties_is_a_dead_letter_that_says_so(
    world: World, runtime: Runtime
) -> None:
    ways = Ways(broker_open=False)
    assert await ways.failed.send_back(failed_message(BIG="x" * 29_500), 0, Q0)
    assert await ways.failed.send_back(failed_message(BIG="x" * 32_600), 0, Q0)
    whole, noted = (copy.properties for copy in ways.copies)
    assert (len(whole["BIG"]), whole["MAX_RECONSUME_TIMES"]) == (29_500, "16")
    assert "BIG" not in noted
    assert noted["PROPERTIES_LEFT_OUT"].startswith("no room for properties 'BIG' (")
    assert (noted["TAGS"], noted["MAX_RECONSUME_TIMES"], noted["RECONSUME_TIME"]) == ("A", "0", "3")
