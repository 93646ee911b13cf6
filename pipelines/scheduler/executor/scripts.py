"""Script languages: the interpreter for source that a centre stores. Pure.

Whoever may edit a job at the centre may run anything here: an executor does so only when its
administrator has said so at its start. Groovy is for the Java executor alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipelines.scheduler.wire.messages import Glue


@dataclass(frozen=True, slots=True)
class Language:
    """How a script is kept and started."""

    command: str
    suffix: str


LANGUAGES: Final = {
    Glue.SHELL: Language("bash", ".sh"),
    Glue.PYTHON: Language("python3", ".py"),
    Glue.PYTHON2: Language("python2", ".py"),
    Glue.NODEJS: Language("node", ".js"),
    Glue.POWERSHELL: Language("pwsh", ".ps1"),
    Glue.PHP: Language("php", ".php"),
}
SWITCHED_OFF: Final = "scripts are switched off on this executor"
