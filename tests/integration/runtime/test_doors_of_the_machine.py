"""What only the real doors do: a full device, file modes, ports in use, deaf hosts."""

from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError, ConnectFailed, DiskFull, StorageError
from engine.runtime import SystemClock, SystemDisk, SystemEntropy, SystemNetwork


def test_a_full_device_is_said_to_be_full() -> None:
    file = SystemDisk().open("/dev/full")
    with pytest.raises(DiskFull, match="/dev/full: no space left"):
        file.pwrite(b"x", 0)
    with pytest.raises(DiskFull):
        file.pwritev([b"x", b"y"], 0)
    file.close()


def test_what_is_stored_is_its_owners_alone(tmp_path: Path) -> None:
    disk = SystemDisk()
    disk.make_directories(f"{tmp_path}/store/commitlog")
    disk.open(f"{tmp_path}/store/checkpoint", create=True).close()
    modes = [
        stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("store", "store/checkpoint")
    ]
    assert modes == [0o700, 0o600]


def test_a_file_where_a_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"")
    with pytest.raises(StorageError, match="making folder"):
        SystemDisk().make_directories(f"{tmp_path}/store/commitlog")


async def test_a_port_in_use_is_a_setting_to_change() -> None:
    network = SystemNetwork()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
            await network.listen("127.0.0.1", port, asyncio.Protocol)


async def test_a_listener_that_is_closed_frees_its_port() -> None:
    network = SystemNetwork()
    listener = await network.listen("127.0.0.1", 0, asyncio.Protocol)
    port = listener.port
    await listener.close()
    with pytest.raises(ConnectFailed, match=f"127.0.0.1:{port}"):
        await network.connect("127.0.0.1", port, asyncio.Protocol, timeout_ms=5000)
    again = await network.listen("127.0.0.1", port, asyncio.Protocol)
    assert again.port == port
    await again.close()


async def test_a_host_that_does_not_answer_is_given_up_in_time() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        queued = []  # Linux answers as long as the backlog has room.
        for _ in range(3):
            caller = socket.socket()
            caller.setblocking(False)
            caller.connect_ex(("127.0.0.1", port))
            queued.append(caller)
        with pytest.raises(ConnectFailed, match=f"127.0.0.1:{port} within 50 ms"):
            await SystemNetwork().connect("127.0.0.1", port, asyncio.Protocol, timeout_ms=50)
        for caller in queued:
            caller.close()


def test_the_steady_clock_never_goes_back_and_both_agree_on_their_units() -> None:
    clock = SystemClock()
    readings = [clock.steady_us() for _ in range(1000)]
    assert readings == sorted(readings)
    assert abs(clock.now_us() // 1000 - clock.now_ms()) <= 1000
    assert abs(clock.steady_us() // 1000 - clock.steady_ms()) <= 1000


def test_choices_stay_below_their_bound_and_tokens_differ() -> None:
    entropy = SystemEntropy()
    assert {entropy.below(3) for _ in range(200)} == {0, 1, 2}
    assert entropy.token(16) != entropy.token(16)
    assert len(entropy.token(16)) == 16
