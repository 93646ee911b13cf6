"""Re-exports all request and response bodies so that upper layers import one module."""

from engine.protocol.bodies_admin import *  # noqa: F403
from engine.protocol.bodies_broker import *  # noqa: F403
from engine.protocol.bodies_client import *  # noqa: F403
from engine.protocol.body_codec import *  # noqa: F403
