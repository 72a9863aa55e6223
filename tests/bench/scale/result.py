"""What the cases of scale_bench.py give, and how large they are."""

import collections
import dataclasses

# `holds`: whether the goal is reached; None: it has no goal.
Row = collections.namedtuple("Row", "what goal measured holds")


class Broken(Exception):
    """The service did something wrong, whatever its speed."""


@dataclasses.dataclass(frozen=True)
class Size:
    finished: int  # requests in the store
    expiring: int  # of these
    sessions: int  # of the tenant that searches
    searches: int
    clients: int
    rounds: int
    seconds: float  # of a round
    hostile_bodies: int  # so many of them
    connections: int  # without a key
    tenants: int  # of the soak


SIZES = {
    "full": Size(finished=10_000_000, expiring=1_000_000, sessions=400_000, searches=24, clients=64,
                 rounds=5, seconds=5, hostile_bodies=100, connections=1000, tenants=200),
    "small": Size(finished=6_400, expiring=640, sessions=4_000, searches=4, clients=8, rounds=1,
                  seconds=0.5, hostile_bodies=2, connections=50, tenants=12),
}
