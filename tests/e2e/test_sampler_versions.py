"""More sampler versions than memory holds, beside a client that keeps on sampling."""

import os
import random
import subprocess
import sys
import threading

import pytest
import tinker
from tinker import types

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import BIN, LatheServer, tiny_model  # noqa: E402
from support.metrics_page import MetricsPages  # noqa: E402
from support.sdk import resolved  # noqa: E402
from test_samplers import ROW, scores, step  # noqa: E402

VERSIONS = 30
ROOM_MIB = 2  # each version of rank 64 takes more than half of one


@pytest.fixture(scope="module")
def lathe():
    with LatheServer(tiny_model(), args=["--metrics-listen", "127.0.0.1:0"],
                     env={"LATHE_WORKER__RESIDENT_VERSIONS_MIB": str(ROOM_MIB)}) as server:
        yield server


class Decoding:
    """A client that samples without end, on a thread; counts its answers."""

    def __init__(self, service, lathe):
        self.sampler = resolved(service.create_sampling_client(base_model=lathe.model_name))
        self.answers = []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        params = types.SamplingParams(max_tokens=64, temperature=1, seed=5, stop=[])
        while not self.stopping.is_set():
            result = self.sampler.sample(types.ModelInput.from_ints(ROW), 1, params).result()
            self.answers.append(tuple(result.sequences[0].tokens))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()


def test_thirty_versions_in_the_room_of_three(lathe):
    service = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key)
    client = resolved(service.create_lora_training_client(lathe.model_name, rank=64, seed=7))
    pages = MetricsPages(lathe)

    def value(what):
        return pages.value("worker", f"lathe_worker_sampler_version{what}")

    with Decoding(service, lathe) as other:
        samplers, expected = [], []
        for index in range(VERSIONS):
            if index % 2 == 0:
                sampler = resolved(client.save_weights_and_get_sampling_client())
            else:
                path = client.save_weights_for_sampler(f"v{index}").result().path
                sampler = resolved(service.create_sampling_client(model_path=path))
            samplers.append(sampler)
            expected.append(scores(sampler))
            step(client)
        assert value("s") == VERSIONS
        order = list(range(VERSIONS)) * 2
        random.Random(3).shuffle(order)
        before = value("_loads_total")
        for index in order:
            assert scores(samplers[index]) == pytest.approx(expected[index], abs=1e-5)
        assert value("_loads_total") >= before + VERSIONS
        # All at once.
        row = types.ModelInput.from_ints(ROW)
        futures = [sampler.compute_logprobs(row) for sampler in samplers]
        for future, wanted in zip(futures, expected):
            assert future.result()[1:] == pytest.approx(wanted, abs=1e-5)
    for one, next_one in zip(expected, expected[1:]):
        assert one != pytest.approx(next_one, abs=1e-5)
    assert value("_evictions_total") > VERSIONS
    assert value("s_loaded") < VERSIONS
    assert len(other.answers) > 2 and len(set(other.answers)) == 1


def test_a_negative_room_is_refused(tmp_path):
    done = subprocess.run(
        [BIN / "lathe-worker"], capture_output=True, text=True, timeout=60,
        env={"PATH": "/usr/bin:/bin", "LATHE_DATA__DIR": str(tmp_path),
             "LATHE_WORKER__MODEL": "none", "LATHE_WORKER__RESIDENT_VERSIONS_MIB": "-1"})
    assert done.returncode == 78
    assert "resident_versions_mib is -1, minimum is 0" in done.stderr
