"""A world in one process: virtual time, a virtual network and virtual disks that run the
production engine.

One seed decides every delay, fault and interleaving, so the same seed is the same run, byte for
byte (`World.trace`).
"""

from tests.simulation.world.world import Node, World, run_world

__all__ = ["Node", "World", "run_world"]
