"""Which addresses may be asked, where secrets come from, and what a receivers' file may say."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError
from pipelines.alerting.channels.opening import channels_of
from pipelines.alerting.channels.receivers import RECEIVERS_MAX, read_receivers, receivers_of
from pipelines.base.outgoing_addresses import Hosts, is_allowed
from pipelines.base.secrets import Secret, secret_from, without_secrets

SLACK = 'allow_hosts = ["hooks.slack.com"]\n[[receivers]]\nname = "a"\nkind = "slack"\n'
MAIL = (
    'allow_hosts = ["mail.example"]\n[[receivers]]\nname = "m"\nkind = "mail"\n'
    'host = "mail.example"\nsender = "t@a.example"\nrecipients = ["b@a.example"]\n'
)


@pytest.mark.parametrize(
    ("address", "anywhere", "private"),
    [
        ("93.184.216.34", True, True),
        ("2606:2800:220:1::1", True, True),
        ("127.0.0.1", False, True),
        ("10.1.2.3", False, True),
        ("192.168.0.1", False, True),
        ("::1", False, True),
        ("fd00::1", False, True),
        ("::ffff:10.0.0.1", False, True),
        ("169.254.169.254", False, False),
        ("::ffff:169.254.169.254", False, False),
        ("64:ff9b::a9fe:a9fe", False, False),
        ("64:ff9b::7f00:1", False, True),
        ("2002:7f00:1::", False, True),
        ("2002:a9fe:a9fe::", False, False),
        ("fe80::1%eth0", False, False),
        ("224.0.0.1", False, False),
        ("0.0.0.0", False, False),
        ("::", False, False),
        ("no address", False, False),
    ],
)
def test_an_address_is_asked_only_where_its_kind_is_allowed(
    address: str, anywhere: bool, private: bool
) -> None:
    assert is_allowed(address, may_be_private=False) is anywhere
    assert is_allowed(address, may_be_private=True) is private


def test_a_name_with_one_bad_address_among_good_ones_is_not_asked() -> None:
    hosts = Hosts(frozenset({"a.example"}), frozenset({"b.example"}))
    assert hosts.checked("A.example.", ["93.184.216.34"]) == ("93.184.216.34",)
    assert hosts.checked("b.example", ["10.0.0.1", "1.1.1.1"]) == ("10.0.0.1", "1.1.1.1")
    with pytest.raises(ConfigError, match=r"without the address 10\.0\.0\.1"):
        hosts.checked("a.example", ["93.184.216.34", "10.0.0.1"])
    for other in ("sub.a.example", "example", "a.example.evil", ""):
        with pytest.raises(ConfigError, match="allow_hosts"):
            hosts.check(other)


def test_a_secret_is_read_from_environment_or_file_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("canary\nsecond line\n")
    from_file = secret_from(None, str(file), {}, key="url")
    from_environment = secret_from("V", None, {"V": " canary "}, key="url")

    assert from_file is not None
    assert from_environment is not None
    assert from_file.reveal() == from_environment.reveal() == "canary"
    assert "canary" not in f"{from_file!r} {from_environment} {[from_file]}"
    assert secret_from(None, None, {}, key="url") is None
    with pytest.raises(ConfigError, match="that is set"):
        secret_from("V", None, {"V": " "}, key="url")
    with pytest.raises(ConfigError, match="that can be read"):
        secret_from(None, str(tmp_path / "missing"), {}, key="url")
    with pytest.raises(ConfigError, match="left out where url_file is given"):
        secret_from("V", str(file), {"V": "x"}, key="url")


def test_no_part_of_an_address_is_shown() -> None:
    address = "https://hooks.example/services/T0SECRET/B0%20SECRET?token=abcdefgh"
    text = f"{address} T0SECRET, B0 SECRET and abcdefgh at /services/T0SECRET/B0%20SECRET"
    shown = without_secrets(text, [Secret(address, "a test"), None])
    assert not any(part in shown for part in ("T0SECRET", "SECRET", "abcdefgh"))


@pytest.mark.parametrize(
    ("text", "where", "allowed"),
    [
        ("x = 1", "receivers", "unknown field `x`"),
        ("[[receivers", "receivers", "TOML: "),
        ("receivers = 3", "receivers", "Expected `array`"),
        (SLACK + 'url = "https://canary"', "receiver a", "unknown field `url`"),
        (SLACK.replace('"slack"', '"canary"'), "receiver a.kind", "one of alertmanager, webhook"),
        (SLACK.replace('"a"', '"a b"'), r"receivers\[0\].name", "matching regex"),
        (SLACK + "timeout_s = 600", "receiver a.timeout_s", "<= 60"),
        (SLACK + '[[receivers]]\nname = "a"\nkind = "slack"', "name", "no other receiver has"),
        (MAIL.replace("b@a.example", "b@a.example\\nBcc: canary@x"), r"receiver m\.rec", "regex"),
        (MAIL.replace("b@a.example", "b@a.example\\n"), r"receiver m\.recipients", "regex"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place_and_without_what_it_says(
    text: str, where: str, allowed: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{where}.*{allowed}.*our file") as refused:
        receivers_of(text, "our file")
    assert "canary" not in str(refused.value)


def test_too_many_receivers_are_refused() -> None:
    one = '[[receivers]]\nname = "a{}"\nkind = "slack"\n'
    text = "".join(one.format(at) for at in range(RECEIVERS_MAX + 1))
    with pytest.raises(ConfigError, match="length <= 100"):
        receivers_of(text, "our file")


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_receivers(tmp_path / "missing.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_receivers(tmp_path / "bytes.toml")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (SLACK, "url_env.* or url_file.*receiver a"),
        (SLACK + 'url_env = "NONE"', "NONE.*that is set.*receiver a"),
        (SLACK + 'url_env = "OTHER"', "one of allow_hosts.*receiver a"),
        (SLACK + 'url_env = "PLAIN"', "https, but for allow_private_hosts.*receiver a"),
        (SLACK + 'url_env = "USER"', "without user and password.*receiver a"),
        (MAIL + 'user = "t"', "given with password_env"),
        (MAIL + 'tls = "none"', "starttls or implicit"),
        (MAIL.replace('["mail.example"]', "[]"), "one of allow_hosts.*receiver m"),
    ],
)
def test_a_receiver_that_cannot_work_is_refused_before_anything_is_sent(
    text: str, reason: str
) -> None:
    environment = {
        "OTHER": "https://canary.example/canary",
        "PLAIN": "http://hooks.slack.com/canary",
        "USER": "https://user:canary@hooks.slack.com/",
    }
    with ThreadPoolExecutor(1) as threads, pytest.raises(ConfigError, match=reason) as refused:
        channels_of(receivers_of(text, "a test"), environment, threads)
    assert "/canary" not in str(refused.value)
    assert ":canary" not in str(refused.value)
