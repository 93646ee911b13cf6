"""Engine telemetry, which turns facts into rows, spools them and ships them to Delta."""

from engine.telemetry.progress import PulledMark
from engine.telemetry.telemetry import SPOOL_DIRECTORY, EmitterIdentity, Telemetry

__all__ = ["SPOOL_DIRECTORY", "EmitterIdentity", "PulledMark", "Telemetry"]
