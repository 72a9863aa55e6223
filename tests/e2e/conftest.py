"""One running Lathe per test module. The suite runs once per SDK version: `tools/test` starts
pytest with the Python of `.venv` (newest SDK) and of each `.venv-tinker-*`."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402


@pytest.fixture(scope="module")
def lathe():
    with LatheServer(tiny_model()) as server:
        yield server
