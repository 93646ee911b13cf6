"""Who is let in, and where a request may go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.errors import ConfigError
from pipelines.scheduler.wire.addresses import Address
from pipelines.scheduler.wire.client import headers_of
from pipelines.scheduler.wire.tokens import Speaker, Tokens

EVERYBODY = Speaker(app=None)


def test_without_tokens_everybody_may_speak() -> None:
    tokens = Tokens(None)
    assert tokens.is_open
    assert tokens.speaker("", "") == tokens.speaker("app", "anything") == EVERYBODY
    assert tokens.may_speak_for(EVERYBODY, "app")


def test_the_common_token_lets_in_whoever_has_none_of_his_own() -> None:
    tokens = Tokens("common", {"reports": "own"})
    assert tokens.speaker("", "common") == tokens.speaker("other", "common") == EVERYBODY
    assert tokens.speaker("reports", "common") is None
    assert tokens.may_speak_for(EVERYBODY, "other")
    assert not tokens.may_speak_for(EVERYBODY, "reports")


def test_a_token_of_its_own_speaks_for_one_executor() -> None:
    tokens = Tokens(None, {"reports": "own", "checks": "else"})
    speaker = tokens.speaker("reports", "own")
    assert speaker == tokens.speaker("", "own") == Speaker("reports")
    assert speaker is not None
    assert tokens.may_speak_for(speaker, "reports")
    assert not tokens.may_speak_for(speaker, "checks")
    assert tokens.speaker("checks", "own") is None
    assert tokens.speaker("reports", "") is None


@given(st.text(max_size=40).filter(lambda token: token not in {"common", "own"}), st.text())
def test_no_other_token_is_let_in(token: str, app: str) -> None:
    assert Tokens("common", {"reports": "own"}).speaker(app, token) is None


@pytest.mark.parametrize(
    ("common", "own"), [("", {}), (" ", {}), (None, {"a": ""}), ("x", {"a": "x"}),
                        (None, {"a": "x", "b": "x"}), ("y" * 1_025, {})],
)  # fmt: skip
def test_tokens_that_let_in_too_many_are_refused(common: str | None, own: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="access token must be "):
        Tokens(common, own)


def test_a_token_that_no_header_can_carry_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ConfigError):
        headers_of("a\r\nX-Other: 1", None)
    assert headers_of(None, None) == {}


@pytest.mark.parametrize(
    ("text", "host", "port", "path"),
    [
        ("http://127.0.0.1:19999/", "127.0.0.1", 19999, "/"),
        ("http://10.1.2.3:9999", "10.1.2.3", 9999, "/"),
        ("https://jobs.example:8443/a/b", "jobs.example", 8443, "/a/b/"),
        ("https://jobs.example/", "jobs.example", 443, "/"),
        ("http://[fd00::1]:9999/", "fd00::1", 9999, "/"),
    ],
)
def test_where_executors_are_is_read(text: str, host: str, port: int, path: str) -> None:
    at = Address.parse(text)
    assert (at.host, at.port, at.path, at.text) == (host, port, path, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1:9999",
        "ftp://10.0.0.1/",
        "file:///etc/passwd",
        "http://169.254.169.254/",
        "http://[::ffff:169.254.169.254]/",
        "http://[fe80::1]/",
        "http://0.0.0.0:9999/",
        "http://224.0.0.1/",
        "http://user:pass@10.0.0.1/",
        "http://@10.0.0.1/",
        "http://10.0.0.1/?x=1",
        "http://10.0.0.1/#x",
        "http://10.0.0.1/a?",
        "http://10.0.0.1/../x",
        "http://10.0.0.1/%2e%2e/",
        "http://10.0.0.1:0/",
        "http://10.0.0.1:99999/",
        "http://10.0.0.1:x/",
        "http://10.0.0.1/,http://10.0.0.2/",
        "http://10.0.0.1/\r\nX: 1",
        "http://10.0.0.1\\@evil/",
        "http://[::1/",
        "http://" + "a" * 250 + "/",
        "http://ex\u00e4mple/",
        "http:///x",
        "http://./",
    ],
)
def test_what_is_no_place_of_an_executor_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Address.parse(text)


def test_a_name_that_leads_to_a_forbidden_address_is_refused() -> None:
    at = Address.parse("http://metadata.example/")
    assert at.is_name
    assert at.chosen(["10.0.0.7"]) == "10.0.0.7"
    with pytest.raises(ConfigError):
        at.chosen(["10.0.0.7", "169.254.169.254"])


@given(st.text(max_size=300))
def test_whatever_is_registered_is_an_address_or_refused(text: str) -> None:
    try:
        at = Address.parse(text)
    except ConfigError:
        return
    assert at.scheme in {"http", "https"}
    assert 0 < at.port < 65_536
