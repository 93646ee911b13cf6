"""Laws of signed requests, whatever is in them."""

from __future__ import annotations

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.foundation.errors import RequestRefused
from engine.protocol.command import RemotingCommand, SerializeType
from engine.protocol.frames import FrameDecoder, encode_frame
from engine.remoting.accounts import Account, Accounts
from engine.remoting.signing import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, Credentials

OURS = (ACCESS_KEY, SECURITY_TOKEN, SIGNATURE)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NAMES = st.text(string.ascii_letters + "é€😀_", min_size=1, max_size=6).filter(
    lambda name: name not in OURS
)
FIELDS = st.dictionaries(NAMES, TEXTS, max_size=8)
BODIES = st.binary(max_size=200)
KEY = Credentials("key", "a secret")
ACCOUNTS = Accounts([Account(KEY, admin=True)])


@given(FIELDS, BODIES, st.sampled_from(SerializeType))
def test_what_was_signed_is_genuine_at_the_other_end(
    fields: dict[str, str], body: bytes, serialize_type: SerializeType
) -> None:
    request = RemotingCommand.request(10, fields, body)
    request.serialize_type = serialize_type
    KEY.sign(request)
    [arrived] = FrameDecoder().feed(encode_frame(request))
    assert ACCOUNTS.authenticated(arrived).credentials == KEY


@given(FIELDS, BODIES, st.data())
def test_no_value_and_no_byte_of_the_body_can_be_changed(
    fields: dict[str, str], body: bytes, data: st.DataObject
) -> None:
    request = RemotingCommand.request(10, fields, body)
    KEY.sign(request)
    if data.draw(st.booleans()) and fields:
        name = data.draw(st.sampled_from(sorted(fields)))
        other = data.draw(TEXTS)
        assume(len(other) == len(fields[name]) and other != fields[name])
        request.fields[name] = other
    else:
        other_body = data.draw(BODIES)
        assume(other_body != body)
        request.body = other_body
    with pytest.raises(RequestRefused):
        ACCOUNTS.authenticated(request)


@given(FIELDS, BODIES, TEXTS)
def test_another_secret_never_signs_the_same(
    fields: dict[str, str], body: bytes, secret: str
) -> None:
    assume(secret not in ("", KEY.secret_key))
    assume(secret.rstrip("\0") != KEY.secret_key)  # HMAC fills a short key with zeros.
    request = RemotingCommand.request(10, fields, body)
    Credentials("key", secret).sign(request)
    with pytest.raises(RequestRefused):
        ACCOUNTS.authenticated(request)
