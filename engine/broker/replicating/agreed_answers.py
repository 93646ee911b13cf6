"""Delays a Raft group's answers until the group agrees on all that they rest on.

Place in the walk: around the handlers of the requests that are listed here (`handler_table`). Sends
wait by `sending/safety`; what is pulled is committed.

Invariant: what a leader has in memory, and nobody agreed on, nobody hears of. Absent on purpose:
how the group agrees (`raft_group`).
"""

from __future__ import annotations

from typing import Final

from engine.broker.replicating.raft_group import RaftGroup
from engine.foundation.errors import RequestRefused
from engine.protocol.codes import RequestCode
from engine.protocol.command import RemotingCommand
from engine.remoting import Handler, Peer

RESTS_ON_TABLES: Final = (
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.DELETE_CONSUMER_OFFSETS,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    *(code for code in RequestCode if code.name.startswith("AUTH_")),
)
"""Requests that change what the nodes of a Raft group agree on, or whose answers are acted upon."""


def agreed(handler: Handler, group: RaftGroup) -> Handler:
    """The handler of a node of a group: only the leader's answers, and those when the group agrees
    on all that they rest on.
    """

    async def answer(peer: Peer, request: RemotingCommand) -> RemotingCommand | None:
        group.check_leads()
        try:
            result = handler(peer, request)
            response = result if isinstance(result, RemotingCommand) else None
            if result is not None and response is None:
                response = await result  # type: ignore[misc]
        except RequestRefused:  # That there is no offset is an answer, too.
            await group.settled()
            raise
        if not request.is_oneway:
            await group.settled()
        return response

    return answer
