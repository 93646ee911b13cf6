"""Randomness interface that makes simulated runs repeatable from a seed."""

from __future__ import annotations

import os
import random
from typing import Protocol


class Entropy(Protocol):
    """A source of choices."""

    def below(self, bound: int) -> int:
        """A whole number in [0, bound); `bound` is at least 1."""
        ...

    def token(self, size_bytes: int) -> bytes:
        """`size_bytes` bytes nobody can guess."""
        ...

    def process_id(self) -> int:
        """This process's number, as clients put it in their ids."""
        ...


class SystemEntropy:
    """The machine's random source."""

    __slots__ = ("_random",)

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def below(self, bound: int) -> int:
        """See `Entropy.below`."""
        return self._random.randrange(bound)

    def token(self, size_bytes: int) -> bytes:
        """See `Entropy.token`."""
        return os.urandom(size_bytes)

    def process_id(self) -> int:
        """See `Entropy.process_id`."""
        return os.getpid()
