import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from fake_lathe import Bench  # noqa: E402


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    for up in made.started:
        up.stop()
