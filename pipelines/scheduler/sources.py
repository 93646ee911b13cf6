"""Normalises a job's source: a shell script loses carriage returns. Pure.

Place in the walk: every way in (command, page, open API, import) makes a JobSettings, which stores
what `runnable` gives. Versions and jobs that an older store holds otherwise pass it when they are
read. An executor writes it to the script's file once more, because another's admin may not have
done so.

    bash takes "\\r" for a part of the last word of each line, and a byte-order mark for a part of
    the first: a source from Windows would fail with "$'\\r': command not found"

XXL-Job's admin removes "\\r" from a GLUE_SHELL when the job is added, but not when its source is
edited afterwards, and its executors run what they get. Absent on purpose: other languages, whose
interpreters take both line ends and, but for PHP, the mark. Their sources are stored as they come,
as there: a text in them may mean its "\\r".
"""

from __future__ import annotations

from typing import Final

from pipelines.scheduler.wire.messages import Glue

BYTE_ORDER_MARK: Final = "\ufeff"


def runnable(glue_type: str, source: str) -> str:
    """The source as its interpreter can run it; the same when that is so already."""
    if glue_type != Glue.SHELL:
        return source
    return source.removeprefix(BYTE_ORDER_MARK).replace("\r", "")
