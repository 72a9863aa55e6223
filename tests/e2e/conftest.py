"""One running Lathe per test module. The suite runs with the newest SDK; what is marked `each_sdk`
runs with the others of the test matrix too: `tools/test sdk` starts pytest with the Python of each
`.venv-tinker-*`."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402


def pytest_itemcollected(item):
    if item.path.parent.name == "sdk":
        item.add_marker(pytest.mark.each_sdk)


@pytest.fixture(scope="module")
def lathe():
    with LatheServer(tiny_model()) as server:
        yield server
