"""A Lathe with a run of some steps, and a browser. Screenshots go to build/test-results/dashboard."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.chromium import PROGRAM, Chromium  # noqa: E402
from support.dashboard import HOSTILE, sign_in, train  # noqa: E402
from support.lathe_server import LatheServer, tiny_model  # noqa: E402


@pytest.fixture(scope="session")
def browser():
    if PROGRAM is None:
        pytest.skip("no chromium here; tools/setup installs it")
    with Chromium() as running:
        yield running


@pytest.fixture(scope="module")
def lathe():
    with LatheServer(tiny_model()) as server:
        yield server


@pytest.fixture(scope="module")
def run_id(lathe):
    return train(lathe, display_name=HOSTILE, project_id="hostile-project",
                 user_metadata={HOSTILE[:40]: HOSTILE, "note": "javascript:alert(1)"})


@pytest.fixture(scope="module")
def signed_in(browser, lathe, run_id):
    """A page on which the key was typed."""
    page = browser.open(lathe.url + "/ui")
    sign_in(page, lathe.api_key)
    yield page
    page.close()
