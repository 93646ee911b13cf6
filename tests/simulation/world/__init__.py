"""A world in one process: virtual time, network and disks under the production engine.

One seed decides every delay, fault and interleaving, so the same seed is the same run, byte for
byte (`World.trace`).
"""

from tests.simulation.world.world import Node, World, run_world

__all__ = ["Node", "World", "run_world"]
