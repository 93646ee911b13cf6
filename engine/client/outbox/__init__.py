"""Producer outbox: messages stored with business data and sent by a job (docs/outbox.md)."""

from engine.client.outbox.outbox_table import OutboxRow, OutboxTable, RowState
from engine.client.outbox.sending import OutboxRun, send_outbox

__all__ = ["OutboxRow", "OutboxRun", "OutboxTable", "RowState", "send_outbox"]
