"""The unmodified Java client signs and encrypts its requests to our broker.

AclClientRPCHook and `-Dtls.enable=true` against our name server and broker with accounts and a
certificate.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.certificates import authority
from tests.interop.java_clients import CHECK_TIMEOUT_S, JavaChecks
from tests.interop.our_engine import QUICK_CHECKS, our_engine

ACCOUNTS = """
[[accounts]]
accessKey = "root"
secretKey = "secret-of-root"
admin = true

[[accounts]]
accessKey = "shop"
secretKey = "secret-of-shop"
defaultTopicPerm = "PUB|SUB"
defaultGroupPerm = "SUB"

[[accounts]]
accessKey = "reader"
secretKey = "secret-of-reader"
defaultTopicPerm = "SUB"
defaultGroupPerm = "SUB"
"""
ADMIN = "account.admin=root:secret-of-root"
SHOP = "account.client=shop:secret-of-shop"
TLS = "tls.enable=true"
DIALECTS = {"json": "JSON", "binary": "ROCKETMQ"}


def access_file(folder: Path, *, mode: str | None) -> Path:
    text = ACCOUNTS
    if mode is not None:
        ca = authority(folder / "ca")
        certificate, key = ca.issue("server")
        text += f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\nmode = "{mode}"\n'
        text += f'authorities = "{ca.certificate}"\n'
    path = folder / "access.toml"
    path.touch(mode=0o600)
    path.write_text(text)
    return path


@pytest.mark.timeout(2 * CHECK_TIMEOUT_S)
@pytest.mark.parametrize("dialect", ["json", pytest.param("binary", marks=pytest.mark.slow)])
def test_signed_and_encrypted_it_sends_and_consumes(
    dialect: str, java_checks: JavaChecks, tmp_path: Path
) -> None:
    access = access_file(tmp_path, mode="strict")
    header = f"rocketmq.serialize.type={DIALECTS[dialect]}"
    with our_engine(tmp_path / "engine", "--access", str(access)) as engine:
        check = "Orderly" if dialect == "json" else "BatchSend"
        verdict = java_checks.run(check, engine.name_server, properties=[ADMIN, SHOP, TLS, header])
        assert verdict.startswith(f"PASS {check} "), verdict


@pytest.mark.timeout(2 * CHECK_TIMEOUT_S)
@pytest.mark.parametrize(
    "check", ["RequestReply", pytest.param("Transaction", marks=pytest.mark.slow)]
)
def test_what_the_broker_gives_unasked_reaches_its_owner(
    check: str, java_checks: JavaChecks, tmp_path: Path
) -> None:
    """Replies and questions about half messages: their owners are Java's producers here."""
    access = ("--access", str(access_file(tmp_path, mode=None)))
    with our_engine(tmp_path / "engine", *access, *QUICK_CHECKS) as engine:
        verdict = java_checks.run(check, engine.name_server, properties=[ADMIN, SHOP])
        assert verdict.startswith(f"PASS {check} "), verdict


@pytest.mark.slow
@pytest.mark.timeout(2 * CHECK_TIMEOUT_S)
@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ([], "not signed"),
        (["account.admin=root:guessed", SHOP], "authentication failed"),
        ([ADMIN, "account.client=reader:secret-of-reader"], "no PUB permission"),
    ],
    ids=["nobody", "a guesser", "a reader"],
)
def test_whom_the_accounts_do_not_let_in_learns_why(
    properties: list[str], complaint: str, java_checks: JavaChecks, tmp_path: Path
) -> None:
    access = access_file(tmp_path, mode="permissive")
    with our_engine(tmp_path / "engine", "--access", str(access)) as engine:
        verdict = java_checks.run("BatchSend", engine.name_server, properties=properties)
        assert verdict.startswith("FAIL BatchSend"), verdict
        assert complaint in verdict, verdict
