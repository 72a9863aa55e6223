import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.stubborn_api import Program, StubbornApi  # noqa: E402

# A group that forms anew, over pods that start, takes a minute on a busy machine.
PATIENCE_SECONDS = 180


@pytest.fixture
def program(service):
    """Training on `service`, a PodService, that repeats calls until they are answered."""
    api = StubbornApi(service, patience=PATIENCE_SECONDS)
    api.http.timeout = 50
    yield Program(api)
    api.close()
    service.cluster.hosts.heal()
