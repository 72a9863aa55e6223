"""Paths of the helpers, and servers that tests share."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
from support.fail_points import FailPoints  # noqa: E402
from support.lathe_server import LatheServer, tiny_model  # noqa: E402


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    return FailPoints(tmp_path_factory.mktemp("fail_points"))


@pytest.fixture(scope="module")
def server(points, tmp_path_factory, request):
    """One Lathe per file that can be told to fail; the file's OPTIONS, if any, are its config,
    and its ARGUMENTS are more of `lathe up`."""
    config = tmp_path_factory.mktemp("config") / "lathe.yaml"
    config.write_text(getattr(request.module, "OPTIONS", "worker:\n  numerics: exact\n"))
    with LatheServer(tiny_model(), env=points.env, args=[
            "--config", str(config), "--metrics-listen", "127.0.0.1:0",
            *getattr(request.module, "ARGUMENTS", [])]) as running:
        yield running


@pytest.fixture
def fail_points(points):
    """The fail points, all off again after the test."""
    yield points
    points.clear()
