"""An engine on Postgres whose database goes away."""

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
import postgres_restarts  # noqa: E402


def test_restarts_of_postgres_lose_and_double_nothing():
    postgres_restarts.check(restarts=4, seed=1)
