"""Several worker groups of one engine: of one base model, of two, and of different roles."""

import json
import os
import re
import signal

import httpx
import pytest
import tinker
from support.fail_points import FailPoints
from support.group_service import GroupService
from support.lathe_server import tiny_model
from support.sdk import resolved
from tinker import types

ADAM = types.AdamParams(learning_rate=1e-3)
TOKENS = [5, 6, 7, 8, 9, 10, 11]
PROMPT = types.ModelInput.from_ints([1, 2, 3])


def datum():
    return types.Datum(model_input=types.ModelInput.from_ints(TOKENS[:-1]),
                       loss_fn_inputs={"target_tokens": TOKENS[1:],
                                       "weights": [1.0] * (len(TOKENS) - 1)})


def client_of(service):
    return tinker.ServiceClient(base_url=service.url, api_key=service.api_key)


def new_model(api, base_model="tiny", seed=1):
    return resolved(api.create_lora_training_client(base_model, rank=2, seed=seed))


def logprobs_of(output):
    return [list(one["logprobs"].data) for one in output.loss_fn_outputs]


def train(model, steps):
    """The logprobs before each step."""
    outputs = []
    for _ in range(steps):
        forward = model.forward_backward([datum()], "cross_entropy")
        step = model.optim_step(ADAM)
        outputs += logprobs_of(forward.result())
        step.result()
    return outputs


def sampled(sampler, num_samples=1, max_tokens=4):
    params = types.SamplingParams(max_tokens=max_tokens, seed=3, temperature=1.0)
    return sampler.sample(PROMPT, num_samples, params)


@pytest.fixture(scope="module")
def undisturbed():
    """What three steps give on one group."""
    with GroupService({"a": (tiny_model(), "tiny")}) as service:
        return train(new_model(client_of(service)), 3)


@pytest.fixture(scope="module")
def two_groups():
    groups = {"a": (tiny_model(), "tiny"), "b": (tiny_model(), "tiny")}
    with GroupService(groups) as service:
        yield service


def test_models_spread_and_one_groups_death_is_nothing_to_the_other(two_groups, undisturbed):
    api = client_of(two_groups)
    models = [new_model(api), new_model(api)]
    assert two_groups.models() == {"a": 1, "b": 1}
    first = [train(model, 1) for model in models]
    epochs = {name: int(group["epoch"]) for name, group in two_groups.describe().items()}
    two_groups.kill("a")
    for model, before in zip(models, first):
        assert before + train(model, 2) == undisturbed
    two_groups.wait_formed()
    after = two_groups.describe()
    assert int(after["a"]["epoch"]) > epochs["a"]
    assert int(after["b"]["epoch"]) == epochs["b"]
    assert two_groups.models() == {"a": 1, "b": 1}


def test_a_model_that_is_moved_goes_on_as_if_it_had_not_been(two_groups, undisturbed):
    api = client_of(two_groups)
    model = new_model(api)
    outputs = train(model, 1)
    sampler = resolved(model.save_weights_and_get_sampling_client())
    before = sampled(sampler).result().sequences[0].tokens
    home = two_groups.home_of(model.model_id)
    other = "b" if home == "a" else "a"
    forward = model.forward_backward([datum()], "cross_entropy")  # it moves with what it runs
    two_groups.lathe("move", model.model_id, "--to", other)
    assert two_groups.home_of(model.model_id) == other
    outputs += logprobs_of(forward.result())
    model.optim_step(ADAM).result()
    two_groups.lathe("move", model.model_id, "--to", home)
    assert outputs + train(model, 1) == undisturbed
    assert sampled(sampler).result().sequences[0].tokens == before


def test_a_drained_group_gives_up_what_it_has(two_groups, undisturbed):
    api = client_of(two_groups)
    models = [new_model(api) for _ in range(2)]
    outputs = [train(model, 1) for model in models]
    # Its stopped worker writes nothing and gives nothing up.
    worker = two_groups.ranks[two_groups.names.index("a")]
    worker.send_signal(signal.SIGSTOP)
    late = two_groups.lathe("group", "drain", "a", "--wait", "300ms", check=False)
    worker.send_signal(signal.SIGCONT)
    assert late.returncode == 69 and "group a still has" in late.stderr, late.stderr
    two_groups.lathe("group", "drain", "a", "--wait", "60s")
    assert two_groups.describe()["a"]["drain"] == "drained"
    assert two_groups.models()["a"] == 0
    models.append(new_model(api))
    outputs.append([])
    assert {two_groups.home_of(model.model_id) for model in models} == {"b"}
    refused = two_groups.lathe("group", "drain", "b", check=False)
    assert "no other group that is ready and not drained trains tiny" in refused.stderr
    two_groups.remove("a")
    for model, known in zip(models, outputs):
        assert known + train(model, 3 - len(known)) == undisturbed
    two_groups.bring_back("a")
    two_groups.wait_formed()
    assert two_groups.describe()["a"]["drain"] == "drained"
    two_groups.lathe("group", "resume", "a")
    two_groups.wait(lambda: two_groups.describe()["a"]["drain"] == "", "group a to be used")


def test_an_operator_drains_and_moves_over_http(two_groups):
    made = two_groups.lathe("keys", "create", "--tenant", "operators", "--scope", "operator", "--scope", "admin")
    key = next(word for word in made.stdout.split() if word.startswith("tml-"))

    def call(method, path):
        return httpx.request(method, f"{two_groups.url}/api/v1/{path}", headers={"X-API-Key": key})

    model = new_model(client_of(two_groups))
    train(model, 1)
    home = two_groups.home_of(model.model_id)
    other = "b" if home == "a" else "a"
    listed = call("GET", f"groups/{home}/models?limit=1000").json()
    assert model.model_id in [one["training_run_id"] for one in listed["models"]]
    assert {one["tenant"] for one in listed["models"]} == {"ranks"}
    assert call("GET", f"groups/{home}/models?limit=1001").json()["error"]["param"] == "max_models"
    assert call("PUT", f"groups/{other}/models/{model.model_id}").status_code == 204
    two_groups.wait(lambda: two_groups.home_of(model.model_id) == other, "the model to move")
    assert call("POST", f"groups/{other}/drain").status_code == 204
    two_groups.wait(lambda: two_groups.models()[other] == 0, "the group to be empty")
    assert two_groups.home_of(model.model_id) == home
    refused = call("POST", f"groups/{home}/drain").json()["error"]
    assert (refused["code"], refused["param"]) == ("no_other_group", "group")
    assert call("POST", f"groups/{other}/resume").status_code == 204
    assert call("DELETE", f"groups/{other}").json()["error"]["code"] == "group_has_worker"
    train(model, 1)
    entries = call("GET", "audit").json()["entries"]
    changes = [(entry["event"], entry["event_details"]["object"]) for entry in entries
               if entry["event"].startswith(("group_", "model_"))]
    assert changes == [("group_take_model", other), ("group_drain", other), ("group_resume", other)]
    # The model's id is in the log of its own tenant.
    assert model.model_id not in json.dumps(entries)
    # Changes by the command line are in the log of no tenant.
    assert {entry["event_details"]["actor"] for entry in entries[-3:]} == {key.removeprefix("tml-").split("_")[0]}


def test_wrong_names_are_refused_with_those_that_there_are(two_groups):
    model = new_model(client_of(two_groups))
    cases = {
        ("move", model.model_id, "--to", "x"): "group is 'x', which does not exist; groups: a, b",
        ("move", "nobody", "--to", "a"): "model_id is 'nobody', which no live model has",
        ("group", "drain", "x"): "group is 'x', which does not exist; groups: a, b",
        ("group", "resume", "x"): "group is 'x', which does not exist; groups: a, b",
    }
    for arguments, message in cases.items():
        refused = two_groups.lathe(*arguments, check=False)
        assert refused.returncode != 0
        assert message in refused.stderr


def test_samples_of_the_base_model_go_to_all_groups(two_groups):
    sampler = client_of(two_groups).create_sampling_client(base_model="tiny")
    futures = [sampled(sampler, max_tokens=60) for _ in range(8)]
    sequences = [future.result().sequences[0].tokens for future in futures]
    assert all(tokens == sequences[0] for tokens in sequences)  # one seed, one base model
    two_groups.wait(lambda: all(int(group["counters"]["generated_tokens"]) > 0
                                for group in two_groups.describe().values()),
                    "both groups to have sampled")


def test_two_base_models_on_one_engine():
    groups = {"a": (tiny_model(), "tiny"), "b": (tiny_model("--seed", "5"), "small")}
    with GroupService(groups) as service:
        api = client_of(service)
        names = {model.model_name for model in api.get_server_capabilities().supported_models}
        assert names == {"tiny", "small"}
        models = {name: new_model(api, name) for name in names}
        outputs = {name: train(model, 1) for name, model in models.items()}
        assert outputs["tiny"] != outputs["small"]
        assert service.models() == {"a": 1, "b": 1}
        for name in names:
            assert sampled(api.create_sampling_client(base_model=name)).result().sequences


def test_a_group_that_trains_and_one_that_samples():
    groups = {"train": (tiny_model(), "tiny"), "sample": (tiny_model(), "tiny")}
    options = {"train": ("--role", "train"), "sample": ("--role", "sample")}
    with GroupService(groups, options) as service:
        assert {name: group["role"] for name, group in service.describe().items()} == {
            "train": "train", "sample": "sample"}
        models = [new_model(client_of(service), seed=seed) for seed in (1, 2)]
        assert service.models() == {"train": 2, "sample": 0}
        for model in models:
            train(model, 2)
            trained = logprobs_of(model.forward([datum()], "cross_entropy").result())[0]
            sampler = resolved(model.save_weights_and_get_sampling_client())
            logprobs = sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result()
            assert logprobs[1:] == pytest.approx(trained, abs=1e-5)
            train(model, 1)  # the version does not move with it
            again = sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result()
            assert again == logprobs
            assert sampled(sampler).result().sequences
        service.wait(lambda: int(service.describe()["sample"]["counters"]["generated_tokens"]) > 0,
                     "the group to have sampled")
        assert int(service.describe()["train"]["counters"]["generated_tokens"]) == 0


def transfers(service):
    """Number of weight transfers, by transport."""
    page = httpx.get(f"http://{service.page}/metrics").text
    found = re.findall(r'^lathe_engine_weight_transfers_total\{transport="(\w+)"\} (\d+)', page, re.MULTILINE)
    return {transport: int(number) for transport, number in found}


ROLES = {"train": (tiny_model(), "tiny"), "sample": (tiny_model(), "tiny")}


def check_samples(model):
    """A version has the weights that its model has now."""
    trained = logprobs_of(model.forward([datum()], "cross_entropy").result())[0]
    sampler = resolved(model.save_weights_and_get_sampling_client())
    logprobs = sampler.compute_logprobs(types.ModelInput.from_ints(TOKENS)).result()
    assert logprobs[1:] == pytest.approx(trained, abs=1e-5)


def test_versions_go_from_memory_to_memory():
    options = {"train": ("--role", "train"), "sample": ("--role", "sample")}
    with GroupService(ROLES, options, snapshot_interval="1h") as service:
        model = new_model(client_of(service))
        for _ in range(3):
            train(model, 1)
            check_samples(model)
        assert transfers(service) == {"memory": 3, "file": 0, "failed": 0}
        assert os.listdir(os.path.join(service.data_dir, "checkpoints")) in ([], ["tmp"])


def test_versions_are_files_where_memory_is_not_served():
    options = {"train": ("--role", "train", "--version-listen", "none"),
               "sample": ("--role", "sample")}
    with GroupService(ROLES, options, snapshot_interval="1h") as service:
        model = new_model(client_of(service))
        train(model, 1)
        check_samples(model)
        assert transfers(service) == {"memory": 0, "file": 1, "failed": 0}


def test_the_group_that_trains_is_killed_while_its_version_is_read(tmp_path):
    options = {"train": ("--role", "train"), "sample": ("--role", "sample")}
    points = FailPoints(tmp_path)
    # The version of a snapshot would be a file.
    service = GroupService(ROLES, options, snapshot_interval="1h")
    service.env.update(points.env)
    with service:
        model = new_model(client_of(service))
        train(model, 2)
        points.set("worker.version.chunk=kill@1")
        check_samples(model)
        assert points.fired("worker.version.chunk") == 1
        assert transfers(service)["failed"] == 1
        train(model, 1)
        check_samples(model)


def test_a_group_that_is_gone_for_good_costs_its_models_delay_only(undisturbed):
    groups = {"a": (tiny_model(), "tiny"), "b": (tiny_model(), "tiny")}
    with GroupService(groups, engine_options=["--group-lost-timeout", "1s"]) as service:
        api = client_of(service)
        models = [new_model(api), new_model(api)]
        first = [train(model, 1) for model in models]
        sampler = resolved(models[0].save_weights_and_get_sampling_client())
        before = sampled(sampler).result().sequences[0].tokens
        service.wait_snapshot()
        service.remove("a")
        for model, known in zip(models, first):
            assert known + train(model, 2) == undisturbed
        assert service.models() == {"a": 0, "b": 2}
        assert sampled(sampler).result().sequences[0].tokens == before
