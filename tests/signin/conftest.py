"""A Lathe, browsers' sessions in it, and identity providers for them."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402
from support.user_session import BrowserSession  # noqa: E402


@pytest.fixture(scope="module")
def lathe():
    with LatheServer(tiny_model()) as server:
        yield server


@pytest.fixture
def key(lathe):
    """A key of an operator. Each test has its own: the sign-ins of one key in a minute are bounded."""
    return lathe.create_key("default", ["operator"])


@pytest.fixture
def session(lathe, key):
    """The session of an operator."""
    with BrowserSession(lathe.url) as client:
        client.sign_in(key)
        yield client
