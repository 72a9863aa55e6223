"""Rows C1 and C2 of the fault table: an engine on Postgres whose database goes away."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import postgres_restarts  # noqa: E402
from support.postgres_cluster import PostgresCluster  # noqa: E402


def test_c1_restarts_of_postgres_lose_and_double_nothing():
    postgres_restarts.check(restarts=3, seed=1, ways=[PostgresCluster.stop])


def test_c2_kills_of_the_postmaster_lose_and_double_nothing():
    postgres_restarts.check(restarts=3, seed=2, ways=[PostgresCluster.kill])
