"""A request for each request code, about one topic, one group and one client, as far as the code
names them; and whether an answer is the gate's refusal.
"""

from __future__ import annotations

import json
from typing import Any

from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.remoting.accounts import NOT_GENUINE, NOT_SIGNED

GATE_SAYS = (NOT_SIGNED, NOT_GENUINE, "is for administrators", "has no ", "the request names no")


def request_fields(
    topic: str, group: str, offset: int = 0, *, client_id: str = "c"
) -> dict[str, object]:
    """Fields that any of the codes asks for, all about one topic and one group."""
    return {
        **dict(zip("abcdefghij", ("p", topic, "TBW102", 4, 0, 0, 7, 0, "", 0), strict=True)),
        "topic": topic,
        "consumerGroup": group,
        "group": group,
        "producerGroup": "p",
        "queueId": 0,
        "offset": offset,
        "commitLogOffset": offset,
        "commitOffset": 0,
        "queueOffset": 0,
        "maxMsgNums": 1,
        "sysFlag": 0,
        "suspendTimeoutMillis": 0,
        "subVersion": 1,
        "subscription": "*",
        "bornTimestamp": 7,
        "flag": 0,
        "timestamp": 1,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "key": "k",
        "maxNum": 1,
        "beginTimestamp": 0,
        "endTimestamp": 2**62,
        "clientID": client_id,
        "delayLevel": 0,
        "tranStateTableOffset": 0,
        "commitOrRollback": 12,
        "msgId": "m",
    }


def request_body(code: int, topic: str, group: str, *, client_id: str = "c") -> bytes:
    """The body of those codes whose names are in it."""
    bodies: dict[int, Any] = {
        Code.HEART_BEAT: {
            "clientID": client_id,
            "consumerDataSet": [
                {
                    "groupName": group,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                    "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1}],
                }
            ],
        },
        Code.LOCK_BATCH_MQ: lock_body(topic, group, client_id),
        Code.UNLOCK_BATCH_MQ: lock_body(topic, group, client_id),
        Code.QUERY_ASSIGNMENT: {"topic": topic, "consumerGroup": group},
    }
    return json.dumps(bodies[code]).encode() if code in bodies else b""


def lock_body(topic: str, group: str, client_id: str) -> dict[str, Any]:
    queue = {"topic": topic, "brokerName": "broker-a", "queueId": 0}
    return {"consumerGroup": group, "clientId": client_id, "mqSet": [queue]}


def is_refused(answer: RemotingCommand) -> bool:
    """Did the gate refuse it? Handlers have words of their own for NO_PERMISSION."""
    remark = answer.remark or ""
    said = any(words in remark for words in GATE_SAYS)
    return answer.code == ResponseCode.NO_PERMISSION and said
