"""Engine errors, classified by who is at fault and what the caller can do about them.

    TidemarkError
      ProtocolError         bytes that do not follow the wire format
        LocalProtocolError    we produced them: a bug here
          RecordTooLarge        no commit-log file can hold the record
        RemoteProtocolError   the peer did: its connection is closed, nobody else is harmed
      RequestRefused        the peer understood the request and said no (carries its code)
      Unreachable           the peer could not be asked
        ConnectFailed         nothing was sent: a retry is safe
        RequestTimedOut       outcome unknown: retry only with an idempotency key
        ConnectionLost        outcome unknown, as above
      StorageError          the disk or the bytes on it
        CorruptRecord         bytes read back are not what was written
        WritesStopped         the store writes no more: a sync failed, or the disk is too full
        DiskFull              no space left: writes are refused, reads go on
        OffsetOutOfRange      an offset outside [min, max] of its queue or log
        FileTooLarge          a file size or a write beyond what the format can address
      ClusterError          the cluster is not in a state to serve this
      KeyReused             a business key was used for two different messages
      ConfigError           a setting is wrong (names key, value and what is allowed)
        NotChangeable         the setting may not change while the party runs
      LakeError             the Delta lake is missing, half-written or not ours

Invariant: an error carries the values involved in its message. Absent on purpose: asserts. A
broken invariant of our own is an `assert`; bytes from disk or network are checked by raising from
this tree.
"""

from __future__ import annotations


class TidemarkError(Exception):
    """Root of the tree; never raised itself."""


class ProtocolError(TidemarkError):
    """Bytes that do not follow the RocketMQ remoting format."""


class LocalProtocolError(ProtocolError):
    """We tried to produce bytes that the format cannot carry."""


class RecordTooLarge(LocalProtocolError):
    """A message whose record, or a further copy of it, no commit-log file can hold."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that the format does not allow; its connection is closed."""


class RequestRefused(TidemarkError):
    """The peer answered with a response code other than SUCCESS.

    `code` is the response code, `remark` the peer's words.
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(f"response code {code}: {remark}")
        self.code = code
        self.remark = remark


class Unreachable(TidemarkError):
    """The peer could not be asked, or its answer did not arrive."""


class ConnectFailed(Unreachable):
    """No connection could be made; nothing was sent, a retry is safe."""


class RequestTimedOut(Unreachable):
    """No answer within the time allowed; whether the request was carried out is unknown."""


class ConnectionLost(Unreachable):
    """The connection ended while a request was under way; whether it was carried out is unknown."""


class StorageError(TidemarkError):
    """The disk, or the bytes on it."""


class CorruptRecord(StorageError):
    """Bytes read back are not what the format allows."""


class WritesStopped(StorageError):
    """The store refuses writes (SERVICE_NOT_AVAILABLE): a sync failed, or its disk is too full."""


class DiskFull(StorageError):
    """No space left on the device: writes are refused with SERVICE_NOT_AVAILABLE, reads go on."""


class OffsetOutOfRange(StorageError):
    """An offset outside what its log or queue holds."""


class FileTooLarge(StorageError):
    """A write past a file's end, or a file size that the format cannot address."""


class ClusterError(TidemarkError):
    """The cluster is not in a state to serve the request."""


class KeyReused(TidemarkError):
    """A business key that stands for one consumed message came with another content."""


class ConfigError(TidemarkError):
    """A setting is wrong: `key` and `value` as given, `allowed` says what would be right, `place`
    where it was read, if that is known.
    """

    def __init__(self, key: str, value: object, allowed: str, place: str = "") -> None:
        where = f" ({place})" if place else ""
        super().__init__(f"setting {key}={value!r} is not allowed: {allowed}{where}")
        self.key = key
        self.value = value
        self.allowed = allowed
        self.place = place


class NotChangeable(ConfigError):
    """The setting may not change while the party runs, whatever its value."""


class MustBe(ConfigError):
    """A value is not what `key` must be; says so subject first. `allowed` ends "must be …"."""

    def __init__(self, key: str, value: object, allowed: str, place: str = "") -> None:
        super().__init__(key, value, allowed, place)
        where = f" ({place})" if place else ""
        is_shown = value is not None and value != "***"
        given = f" is {value!r}, and" if is_shown else ""
        self.args = (f"{key}{given} must be {allowed}{where}",)


class Faulty(ConfigError):
    """What stands under `key` has a fault, which `allowed` says; its value is not shown."""

    def __init__(self, key: str, fault: str, place: str = "") -> None:
        super().__init__(key, "***", fault, place)
        where = f" ({place})" if place else ""
        self.args = (f"{key} cannot be used: {fault}{where}",)


class RuleBroken(ConfigError):
    """What is asked breaks a rule that is no list of values: `sentence` says which, subject first.
    `key` is what it is about.
    """

    def __init__(self, key: str, value: object, sentence: str) -> None:
        super().__init__(key, value, sentence)
        self.args = (sentence,)


class LakeError(TidemarkError):
    """The Delta lake is missing, half-written, or holds something else than we expect."""
