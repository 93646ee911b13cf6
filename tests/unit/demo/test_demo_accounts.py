"""What the accounts of a demo may do: each client its own part, and nothing else."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from demo.accounts import ADMIN, CONSUMER, PRODUCER, write_accounts
from demo.plan import GROUPS, ORDERS, PAYMENTS
from engine.client.config import ClientConfig, with_credentials
from engine.foundation.errors import ConfigError
from engine.remoting.access import read_access
from engine.remoting.accounts import Account, Permission, group_demand, topic_demand
from engine.runtime import SystemDisk

CLIENT = ClientConfig(namesrv_addresses=("127.0.0.1:9876",))


def accounts(folder: Path) -> dict[str, Account]:
    access = write_accounts(folder).access
    read = read_access(access.read_text(), str(access)).accounts
    return {account.credentials.access_key: account for account in read}


def test_each_client_may_do_its_part_and_nothing_else(tmp_path: Path) -> None:
    known = accounts(tmp_path)
    assert [name for name, account in known.items() if account.admin] == [ADMIN]
    for topic in (ORDERS, PAYMENTS):
        sends, reads = topic_demand(topic, Permission.PUB), topic_demand(topic, Permission.SUB)
        assert (known[PRODUCER].may(sends), known[PRODUCER].may(reads)) == (True, False)
        assert (known[CONSUMER].may(sends), known[CONSUMER].may(reads)) == (False, True)
    for group in GROUPS:
        demand = group_demand(group.name)
        assert (known[PRODUCER].may(demand), known[CONSUMER].may(demand)) == (False, True)
    for account in (known[PRODUCER], known[CONSUMER]):
        assert not account.may(topic_demand("another", Permission.PUB | Permission.SUB))
        assert not account.may(group_demand("another"))


def test_a_client_signs_with_the_account_in_its_file(tmp_path: Path) -> None:
    known, files = accounts(tmp_path), write_accounts(tmp_path / "anew")
    for name, path in ((PRODUCER, files.producer), (CONSUMER, files.consumer)):
        signer = with_credentials(CLIENT, SystemDisk(), str(path)).credentials
        assert signer is not None
        assert signer.access_key == name
        assert signer.secret_key != known[name].credentials.secret_key, "secrets are new each time"
    assert with_credentials(CLIENT, SystemDisk(), None) is CLIENT
    with pytest.raises(ConfigError, match="a file that can be read"):
        with_credentials(CLIENT, SystemDisk(), str(tmp_path / "absent"))


def test_only_their_owner_may_read_the_files(tmp_path: Path) -> None:
    write_accounts(tmp_path)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in sorted(tmp_path.iterdir())]
    assert modes == [0o600] * 4
