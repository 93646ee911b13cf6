"""Producers, consumers and administration of a RocketMQ cluster, ours or Apache's."""

from engine.client.admin import Admin
from engine.client.config import ClientConfig, ConsumerConfig, MessageModel, ProducerConfig
from engine.client.consuming.consumer import PushConsumer
from engine.client.consuming.listeners import (
    ConsumeConcurrentlyStatus,
    ConsumeContext,
    ConsumeOrderlyStatus,
)
from engine.client.consuming.lite_pull import LitePullConsumer
from engine.client.consuming.pull_consumer import PullConsumer
from engine.client.consuming.start_offset import ConsumeFromWhere
from engine.client.message_selector import MessageSelector
from engine.client.producer import Producer
from engine.client.pull_config import LitePullConfig
from engine.client.send_result import SendResult, SendStatus
from engine.client.transaction import TransactionProducer
from engine.client.transaction_end import (
    TransactionEnd,
    TransactionSendResult,
    TransactionState,
)

__all__ = [
    "Admin",
    "ClientConfig",
    "ConsumeConcurrentlyStatus",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeOrderlyStatus",
    "ConsumerConfig",
    "LitePullConfig",
    "LitePullConsumer",
    "MessageModel",
    "MessageSelector",
    "Producer",
    "ProducerConfig",
    "PullConsumer",
    "PushConsumer",
    "SendResult",
    "SendStatus",
    "TransactionEnd",
    "TransactionProducer",
    "TransactionSendResult",
    "TransactionState",
]
