"""Every test of this folder ends with the proof that the server lives and nothing has changed."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", ".."))
from bad_input_table import World  # noqa: E402
from support.raw_api import Witness  # noqa: E402


@pytest.fixture(scope="module")
def witness(lathe):
    witness = Witness(lathe)
    yield witness
    witness.close()


@pytest.fixture(scope="module")
def world(witness):
    return World(witness)


@pytest.fixture
def api(witness):
    return witness.api


@pytest.fixture(autouse=True)
def unchanged(witness):
    yield
    witness.check()


def refused(answer, status, code, *words, field=None):
    """An error as docs/api.md describes it: body and length, code, field, and a message with `words`
    (the value that is wrong and its bound)."""
    assert answer.status_code == status, answer.text
    assert int(answer.headers["content-length"]) == len(answer.content) > 0
    error = answer.json()["error"]
    assert error["code"] == code, error
    assert answer.json()["detail"] == error["message"]
    for word in words:
        assert word in error["message"], (word, error["message"])
    if field is not None:
        assert error["param"] == field, error
