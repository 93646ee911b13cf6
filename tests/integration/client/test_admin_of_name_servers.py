"""`tidemark admin namesrv` as a user types it, against an engine in a process of its own (row C1).

What is changed is kept over a kill, as RocketMQ's tools expect of `updateKvConfig`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.client.typed_commands import answered, done, refused
from tests.interop.our_engine import OurEngine, our_engine


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurEngine]:
    with our_engine(tmp_path_factory.mktemp("admin-name-server")) as running:
        yield running


def settings_of(engine: OurEngine) -> dict[str, str]:
    return {row["key"]: row["value"] for row in answered(engine, "namesrv", "config")}


def test_settings_of_a_name_server_are_returned_and_changed(engine: OurEngine) -> None:
    before = settings_of(engine)
    assert before["orderMessageEnable"] == "false"
    said = done(engine, "namesrv", "set", "orderMessageEnable=true")
    assert said == f"name server {engine.name_server}: orderMessageEnable=true\n"
    assert settings_of(engine) == before | {"orderMessageEnable": "true"}
    assert answered(engine, "namesrv", "config", "--key", "orderMessage") == [
        {"namesrv": engine.name_server, "key": "orderMessageEnable", "value": "true"}
    ]
    done(engine, "namesrv", "set", "orderMessageEnable=false")


def test_a_value_is_stored_returned_and_deleted(engine: OurEngine) -> None:
    assert answered(engine, "namesrv", "values", "OURS") == []
    assert done(engine, "namesrv", "put", "OURS", "who", "ada") == "OURS: who=ada\n"
    done(engine, "namesrv", "put", "OURS", "what", "a=b c")
    assert answered(engine, "namesrv", "values", "OURS") == [
        {"key": "what", "value": "a=b c"},
        {"key": "who", "value": "ada"},
    ]
    done(engine, "namesrv", "delete", "OURS", "who")
    assert [row["key"] for row in answered(engine, "namesrv", "values", "OURS")] == ["what"]
    assert "no name server has who in OURS" in refused(engine, "namesrv", "delete", "OURS", "who")


def test_values_outlive_a_kill(tmp_path: Path) -> None:
    with our_engine(tmp_path, killed=True) as engine:
        done(engine, "namesrv", "put", "OURS", "who", "ada")
        done(engine, "namesrv", "set", "orderMessageEnable=true")
    with our_engine(tmp_path) as engine:
        assert answered(engine, "namesrv", "values", "OURS") == [{"key": "who", "value": "ada"}]
        assert settings_of(engine)["orderMessageEnable"] == "true"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("set", "orderMessageEnable"), "setting='orderMessageEnable' is not allowed: key=value"),
        (
            ("set", "listenPort=1"),
            "setting listenPort='1' is not allowed: changeable while running",
        ),
        (("set", "scanNotActiveBrokerInterval=soon"), "29 INVALID_PARAMETER"),
        (("config", "--key", "nothing"), "part of one of"),
        (("put", " ", "k", "v"), "namespace=' ' is not allowed: not blank"),
        (("values", "OURS", "-n", "127.0.0.1:1"), "is it running, and is the address right?"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    engine: OurEngine, words: tuple[str, ...], part: str
) -> None:
    assert part in refused(engine, "namesrv", *words)
