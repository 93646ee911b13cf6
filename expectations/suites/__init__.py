"""Every check there is, in the order in which a reader wants the answers."""

from expectations.suites.offsets import OFFSETS
from expectations.suites.tables import TABLES
from expectations.suites.telemetry import TELEMETRY

__all__ = ["ALL_CHECKS"]

ALL_CHECKS = (*OFFSETS, *TELEMETRY, *TABLES)
