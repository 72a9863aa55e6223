"""`lathe up` with several base models: tenants use all of them at once, and what happens to one of
them is nothing to the others."""

import json
import pathlib
from concurrent.futures import ThreadPoolExecutor

import pytest
import tinker
from support.fail_points import FailPoints
from support.group_service import GroupService
from support.lathe_server import LatheServer, tiny_model
from support.raw_api import RawApi
from support.sdk import resolved
from support.waiting import wait_until
from tinker import types

ADAM = types.AdamParams(learning_rate=1e-3)
TOKENS = [5, 6, 7, 8, 9, 10, 11]
SMALL = ("--layers", "1", "--head-dim", "32", "--seed", "5")
EXACT = {"LATHE_WORKER__NUMERICS": "exact"}
WORKERS = ["worker-org+small", "worker-tiny"]


def small_model():
    return tiny_model(*SMALL)


def two_models(env=None):
    """A server of `tiny` and `org/small`, which has one layer and wider heads."""
    return LatheServer(tiny_model(), args=["--model", f"org/small={small_model()}"],
                       env={**EXACT, **(env or {})})


def client_of(server, tenant):
    return tinker.ServiceClient(base_url=server.url, api_key=server.create_key(tenant))


def new_model(api, base_model):
    return resolved(api.create_lora_training_client(base_model, rank=2, seed=1))


def datum():
    return types.Datum(model_input=types.ModelInput.from_ints(TOKENS[:-1]),
                       loss_fn_inputs={"target_tokens": TOKENS[1:],
                                       "weights": [1.0] * (len(TOKENS) - 1)})


def train(model, steps):
    """The logprobs before each step."""
    outputs = []
    for _ in range(steps):
        forward = model.forward_backward([datum()], "cross_entropy")
        step = model.optim_step(ADAM)
        outputs += [list(one["logprobs"].data) for one in forward.result().loss_fn_outputs]
        step.result()
    return outputs


def sampled(sampler):
    params = types.SamplingParams(max_tokens=8, seed=3, temperature=1.0)
    return sampler.sample(types.ModelInput.from_ints([1, 2, 3]), 1, params).result().sequences[0].tokens


def groups_of(server):
    return {group["group"]: group for group in server.status()["groups"]}


def capabilities(server):
    api = RawApi(server)
    models = api.get("get_server_capabilities").json()["supported_models"]
    api.close()
    return {model["model_name"]: model for model in models}


def refusal_of_new_model(server, base_model):
    api = RawApi(server)
    answer = api.post("create_model", {"session_id": api.new_session(), "model_seq_id": 0,
                                       "base_model": base_model, "lora_config": {"rank": 2}})
    api.close()
    assert answer.status_code == 404
    return answer.json()["detail"]


@pytest.fixture(scope="module")
def undisturbed():
    """What four steps on each base model give where it is the only one, by its name."""
    outputs = {}
    for name, folder in (("tiny", tiny_model()), ("org/small", small_model())):
        with LatheServer(folder, name=name, env=EXACT) as server:
            outputs[name] = train(new_model(client_of(server, "alone"), name), 4)
    return outputs


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    return FailPoints(tmp_path_factory.mktemp("points"))


@pytest.fixture(scope="module")
def server(points):
    with two_models(env=points.env) as running:
        yield running


def test_tenants_train_and_sample_both_at_once(server, undisturbed):
    assert sorted(set(server.pids()) - {"up", "engine", "gateway"}) == WORKERS
    assert {name: group["base_model"] for name, group in groups_of(server).items()} == {
        "tiny": "tiny", "org/small": "org/small"}
    served = client_of(server, "all").get_server_capabilities().supported_models
    assert {model.model_name for model in served} == {"tiny", "org/small"}
    assert all(model["ready"] and model["reason"] is None for model in capabilities(server).values())

    def use(tenant, name):
        api = client_of(server, tenant)
        model = new_model(api, name)
        outputs = train(model, 4)
        sampler = resolved(model.save_weights_and_get_sampling_client())
        base = api.create_sampling_client(base_model=name)
        return name, outputs, sampled(sampler), sampled(base)

    users = [(f"tenant{i}", name) for i in range(2) for name in undisturbed]
    with ThreadPoolExecutor(len(users)) as pool:
        results = list(pool.map(lambda user: use(*user), users))
    for name, outputs, tuned, base in results:
        assert outputs == [pytest.approx(one, abs=1e-4) for one in undisturbed[name]]
        assert (tuned, base) == next((t, b) for n, _, t, b in results if n == name)
    assert {name: int(group["models"]) for name, group in groups_of(server).items()} == {
        "tiny": 2, "org/small": 2}


def test_one_that_is_down_is_told_apart_and_the_other_goes_on(server, points, undisturbed):
    """Its worker is killed, and then dies at each load until the fault is over."""
    api = client_of(server, "down")
    models = {name: new_model(api, name) for name in undisturbed}
    outputs = {name: train(model, 2) for name, model in models.items()}
    epoch = int(groups_of(server)["org/small"]["epoch"])
    pids = server.pids()
    points.set("worker.load.base=kill")
    server.kill("worker-tiny")
    wait_until(lambda: groups_of(server)["tiny"]["state"] == "degraded", "the group to be degraded")
    waiting = models["tiny"].forward_backward([datum()], "cross_entropy")

    assert "while loading tiny" in groups_of(server)["tiny"]["reason"]
    shown = capabilities(server)
    assert shown["org/small"]["ready"] and not shown["tiny"]["ready"]
    assert "while loading tiny" in shown["tiny"]["reason"]
    outputs["org/small"] += train(models["org/small"], 2)
    assert sampled(api.create_sampling_client(base_model="org/small"))
    assert groups_of(server)["org/small"]["state"] == "ready"
    assert int(groups_of(server)["org/small"]["epoch"]) == epoch
    assert server.pids()["worker-org+small"] == pids["worker-org+small"]

    points.clear()
    outputs["tiny"] += [list(one["logprobs"].data) for one in waiting.result().loss_fn_outputs]
    models["tiny"].optim_step(ADAM).result()
    outputs["tiny"] += train(models["tiny"], 1)
    assert capabilities(server)["tiny"]["ready"]
    for name, expected in undisturbed.items():
        assert outputs[name] == [pytest.approx(one, abs=1e-4) for one in expected]


def test_what_belongs_to_another_base_model_is_refused_by_name(server):
    api = client_of(server, "other")
    path = new_model(api, "tiny").save_state("a").result().path
    small = new_model(api, "org/small")
    with pytest.raises(tinker.TinkerError, match="is of base model tiny, not org/small"):
        small.load_state(path).result()
    train(small, 1)
    assert "base_model is 'org/none', this server has org/small, tiny" in refusal_of_new_model(
        server, "org/none")
    again = resolved(api.create_training_client_from_state(path))
    assert again.get_info().model_data.model_name == "tiny"
    train(again, 1)


@pytest.mark.parametrize("power_fails", [False, True])
def test_the_models_of_both_go_on_after_a_restart(undisturbed, power_fails):
    """Also when only one is served meanwhile, whose group then has another name."""
    server = two_models()
    try:
        server.start()
        api = client_of(server, "restart")
        models = {name: new_model(api, name) for name in undisturbed}
        outputs = {name: train(model, 1) for name, model in models.items()}
        server.kill_everything() if power_fails else server.stop()
        server.start()
        for name, model in models.items():
            outputs[name] += train(model, 1)
        server.stop()

        both = server.args
        server.args = []
        server.start()
        assert "org/small was served from this data directory and is not any more" in server.output()
        assert list(capabilities(server)) == ["tiny"]
        assert list(groups_of(server)) == ["default"]
        outputs["tiny"] += train(models["tiny"], 1)
        assert "org/small" in refusal_of_new_model(server, "org/small")
        server.stop()

        server.args = both
        server.start()
        assert sorted(groups_of(server)) == ["org/small", "tiny"]
        for name, model in models.items():
            outputs[name] += train(model, 1)
            expected = undisturbed[name][:len(outputs[name])]
            assert outputs[name] == [pytest.approx(one, abs=1e-4) for one in expected]
    finally:
        server.stop()


def test_one_that_cannot_start_is_told_apart(tmp_path):
    """Its folder is of a family that no worker knows."""
    folder = tmp_path / "odd"
    folder.mkdir()
    for file in pathlib.Path(small_model()).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "odd"}))
    with LatheServer(tiny_model(), args=["--model", f"odd={folder}"]) as server:
        assert "odd is not served: worker-odd ended with exit code 78" in server.output()
        assert "odd is not served yet" in server.output()
        train(new_model(client_of(server, "a"), "tiny"), 1)
        assert list(capabilities(server)) == ["tiny"]
        raw = RawApi(server)
        refused = raw.post("create_sampling_session", {
            "session_id": raw.new_session(), "sampling_session_seq_id": 0, "base_model": "odd"})
        assert refused.status_code == 503
        assert "base model cannot be loaded" in refused.json()["detail"]
        raw.close()
        (folder / "config.json").write_text(json.dumps(config))
        wait_until(lambda: "odd is served now" in server.output(), "the model to be served")
        train(new_model(client_of(server, "b"), "odd"), 1)


class OneReady(GroupService):
    """Does not wait for group b."""

    def wait_formed(self):
        self._await(lambda: self.is_ready("a"), "group a")


def test_one_that_is_too_large_is_told_apart():
    groups = {"a": (tiny_model(), "tiny"), "b": (small_model(), "small")}
    with OneReady(groups, {"b": ("--host-memory-mib", "1")}) as service:
        service.wait(lambda: "the model needs" in service.describe().get("b", {}).get("reason", ""),
                     "the reason")
        assert service.describe()["b"]["state"] in ("lost", "degraded")
        api = tinker.ServiceClient(base_url=service.url, api_key=service.api_key)
        train(new_model(api, "tiny"), 1)
        refused = service.lathe("group", "remove", "a", check=False)
        assert "group is 'a', which has an attached worker" in refused.stderr
        service.remove("b")
        service.wait(lambda: service.lathe("group", "remove", "b", check=False).returncode == 0,
                     "the group without a worker to be removed")
        assert list(service.describe()) == ["a"]
        train(new_model(api, "tiny"), 1)
