"""What the engine reports about itself, as rows: declared in tables, gathered, kept in the spool,
shipped to Delta."""

from engine.telemetry.progress import PulledMark
from engine.telemetry.telemetry import SPOOL_DIRECTORY, EmitterIdentity, Telemetry

__all__ = ["SPOOL_DIRECTORY", "EmitterIdentity", "PulledMark", "Telemetry"]
