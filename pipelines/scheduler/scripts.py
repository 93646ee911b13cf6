"""Defines job script languages and their interpreters, and normalises script sources.

Place in the walk: every way in (command, page, open API, import) makes a JobSettings, which stores
what `runnable` gives; an executor writes it to the script's file once more, because another's admin
may not have done so. bash takes "\\r" for a part of the last word of each line, and a byte-order
mark for a part of the first. XXL-Job removes "\\r" when a job is added, not when its source is
edited.

Whoever may edit a job at the centre may run anything here: an executor does so only when its
administrator has said so at its start. Absent on purpose: Groovy, which is for the Java executor
alone, and other languages' line ends, which their interpreters take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipelines.scheduler.wire.messages import Glue

BYTE_ORDER_MARK: Final = "\ufeff"


def runnable(glue_type: str, source: str) -> str:
    """The source as its interpreter can run it; the same when that is so already."""
    if glue_type != Glue.SHELL:
        return source
    return source.removeprefix(BYTE_ORDER_MARK).replace("\r", "")


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
