"""Rows C1, C2 and C7 of the fault table, of the store alone: short runs of store_commits.py."""

import os
import sys

sys.path.insert(0, os.path.dirname(__file__))
import store_commits  # noqa: E402


def test_c7_kills_of_a_process_on_sqlite_lose_and_double_nothing():
    assert store_commits.check_sqlite(commits=3000, kills=10) >= 8


def test_c1_c2_crashes_of_postgres_lose_and_double_nothing():
    store_commits.check_postgres(commits=2000, kills=6)
