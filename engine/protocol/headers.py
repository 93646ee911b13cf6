"""Re-exports all custom headers so that upper layers import one module."""

from engine.protocol.headers_admin import *  # noqa: F403
from engine.protocol.headers_client import *  # noqa: F403
