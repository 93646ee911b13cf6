"""The message store: commit log, consume queues, index, and their upkeep, in RocketMQ's file
formats.
"""

from engine.store.config import FlushDiskType, StoreConfig
from engine.store.message_store import MessageStore
from engine.store.put_result import PutResult
from engine.store.reading import GetResult, GetStatus
from engine.store.record import MessageDraft

__all__ = [
    "FlushDiskType",
    "GetResult",
    "GetStatus",
    "MessageDraft",
    "MessageStore",
    "PutResult",
    "StoreConfig",
]
