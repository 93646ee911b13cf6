"""Deprecated alias for `engine.client.outbox.sending` that issues a warning on import."""

import warnings

from engine.client.outbox.sending import OutboxRun, send_outbox

__all__ = ["OutboxRun", "send_outbox"]

warnings.warn(
    "engine.client.outbox_sending has moved: import OutboxRun and send_outbox from "
    "engine.client.outbox",
    DeprecationWarning,
    stacklevel=2,
)
