"""Questions and orders to a cluster from outside the walk: topics, offsets, lag, members, single messages.

Works on our engine and on an Apache RocketMQ alike. What lives on several brokers is asked of each and joined.

Invariant: reading changes nothing; an order names what it changes. Absent on purpose: deciding when; the demo, the
dashboard and notebooks do. Source: spec rocketmq.md, sections 1 and 11.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

from engine.client.config import ClientConfig
from engine.client.connection import ClusterConnection
from engine.foundation.errors import ConnectFailed, RequestRefused
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import (
    MessageExt,
    MessageQueue,
    decode_record,
    decode_records,
    decompress,
)
from engine.protocol.message_ids import parse_offset_message_id
from engine.protocol.names import AUTO_CREATE_TOPIC, Perm
from engine.runtime import Runtime

QUERY_MESSAGES_MAX = 32
"""Messages one query by key answers with (RocketMQ: defaultQueryMaxNum)."""
