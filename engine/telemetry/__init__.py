"""Engine telemetry: facts become rows, wait in the spool and are shipped to Delta."""

from engine.telemetry.progress import PulledMark
from engine.telemetry.telemetry import SPOOL_DIRECTORY, EmitterIdentity, Telemetry

__all__ = ["SPOOL_DIRECTORY", "EmitterIdentity", "PulledMark", "Telemetry"]
