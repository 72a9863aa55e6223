"""One Lathe for all tests of single SDK methods; the table of docs/tinker_compatibility.md is
written from what they record (tests/support/sdk_matrix.py)."""

import datetime
import os
import sys

import pytest
import tinker
from tinker import types

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402
from support.sdk import resolved  # noqa: E402
from support.sdk_matrix import Cli, MatrixPlugin  # noqa: E402

DATA = [types.Datum(model_input=types.ModelInput.from_ints([30, 31, 32, 33]),
                    loss_fn_inputs={"target_tokens": [50, 51, 52, 53], "weights": [1.0] * 4})]
ADAM = types.AdamParams(learning_rate=1e-2)


def pytest_configure(config):
    config.addinivalue_line("markers", "sdk_method(name): the test checks what this method answers")
    config.pluginmanager.register(MatrixPlugin(), "sdk_matrix")


@pytest.fixture(scope="package")
def lathe():
    with LatheServer(tiny_model()) as server:
        yield server


@pytest.fixture(scope="package")
def service(lathe):
    return tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key,
                                user_metadata={"suite": "sdk"})


@pytest.fixture(scope="package")
def rest(service):
    return service.create_rest_client()


@pytest.fixture(scope="package")
def jwt_lathe():
    """One that has its clients exchange their keys for tokens."""
    with LatheServer(tiny_model(), env={"LATHE_GATEWAY__JWT_AUTH": "true"}) as server:
        yield server


@pytest.fixture(scope="package")
def cli(lathe):
    return Cli(lathe.url, lathe.api_key)


def new_model(service, lathe, steps=1, **options):
    client = resolved(service.create_lora_training_client(
        lathe.model_name, rank=4, seed=9, **options))
    for _ in range(steps):
        client.forward_backward(DATA, "cross_entropy").result()
        client.optim_step(ADAM).result()
    return client


@pytest.fixture(scope="package")
def trained(service, lathe):
    """A model with one step behind it. Tests may train it on: none relies on its weights."""
    return new_model(service, lathe, user_metadata={"made_by": "sdk"})


@pytest.fixture(scope="package")
def run_id(trained):
    return trained.get_info().model_id


@pytest.fixture
def fresh_name(request):
    """A checkpoint name that no other test, and no other form of this one, has taken."""
    name = f"{request.module.__name__.rpartition('.')[2]}-{request.node.name}"
    # The end tells forms apart; a name has 128 characters at most.
    return "".join(c if c.isalnum() else "-" for c in name)[-128:].strip("-")


@pytest.fixture
def saved(trained, fresh_name):
    """The path of a training checkpoint of its own."""
    return trained.save_state(fresh_name).result().path


def used(data, session_id):
    """Tokens of one session by kind of event, and its checkpoints."""
    kinds = {}
    for event in data:
        if event.session_id == session_id:
            info = event.event_info
            name = info.type + ("_cached" if getattr(info, "cached", False) else "")
            kinds[name] = kinds.get(name, 0) + (
                info.count if info.type == "checkpoint" else info.token_count)
    return kinds


def this_hour():
    """A window around now, even if an hour ended meanwhile."""
    hour = datetime.timedelta(hours=1)
    begin = datetime.datetime.now(datetime.timezone.utc).replace(minute=0, second=0, microsecond=0)
    return begin - hour, begin + hour


@pytest.fixture(scope="package")
def billed(lathe):
    """(ServiceClient, session id) of a tenant that made known use of one session: 8 tokens of
    forward_backward, 4 of forward, 3 tokens of prompt, 5 sampled, one checkpoint."""
    service = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.create_key("billed"),
                                   user_metadata={"team": "blue"}, project_id="first")
    model = new_model(service, lathe, steps=2)
    model.forward(DATA, "cross_entropy").result()
    model.save_state("kept").result()
    sampler = resolved(model.save_weights_and_get_sampling_client())
    sampler.sample(types.ModelInput.from_ints([30, 31, 32]), 1,
                   types.SamplingParams(max_tokens=5, stop=[])).result()
    return service, model.get_info().model_id.split(":")[0]


@pytest.fixture(scope="package")
def base(service, lathe):
    return resolved(service.create_sampling_client(base_model=lathe.model_name))
