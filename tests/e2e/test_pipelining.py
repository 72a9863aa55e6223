"""Operations sent ahead of the results they depend on, over plain HTTP."""

import pytest
from support.lathe_server import LatheServer, tiny_model
from support.raw_api import ADAM, RawApi, RawModel, datum, tensor

STEP = {"adam_params": {**ADAM, "learning_rate": 1e-2}}


@pytest.fixture
def model(lathe):
    api = RawApi(lathe)
    yield RawModel(api)
    api.close()


def send(model, route, **body):
    return model.api.made(route, {"model_id": model.model_id, "seq_id": model.next_seq_id(), **body})


def send_batch(model, *data):
    return model.api.made("forward_backward", model.body(list(data)))


def succeeded(model, future):
    result = model.api.result(future)
    assert "error" not in result, result
    return result


def failed(model, future):
    return model.api.result(future)["error"]


def path_of(model, name):
    return f"tinker://{model.model_id}/weights/{name}"


def test_a_bad_later_batch_leaves_the_step_before_it_alone(model):
    good = send_batch(model, *[datum(range(30, 230))] * 40)
    step = send(model, "optim_step", **STEP)
    bad = send_batch(model, datum(target_tokens=tensor([1, 2, 10**6], "int64")))
    spoiled = send(model, "optim_step", **STEP)
    succeeded(model, good)
    assert succeeded(model, step)["metrics"]["grad_norm"] > 0
    assert "1000000" in failed(model, bad)
    assert "forward_backward seq 3 failed" in failed(model, spoiled)


def test_a_load_gets_what_the_save_before_it_wrote(model):
    succeeded(model, send(model, "save_weights", path="latest"))
    before = model.loss()
    send_batch(model, datum())
    send(model, "optim_step", **STEP)
    trained = model.loss()
    assert trained != before
    saves = [send(model, "save_weights", path="latest", overwrite=True),
             send(model, "load_weights", path=path_of(model, "latest"), optimizer=False),
             send(model, "save_weights", path="fresh"),
             send(model, "load_weights", path=path_of(model, "fresh"), optimizer=True)]
    for future in saves:
        succeeded(model, future)
    assert model.loss() == trained


def test_what_follows_a_load_of_nothing_does_not_run(model):
    path = path_of(model, "absent")
    before = model.loss()
    load = send(model, "load_weights", path=path, optimizer=False)
    batch = send_batch(model, datum())
    step = send(model, "optim_step", **STEP)
    assert f"checkpoint {path} not found" in failed(model, load)
    assert "load_weights seq" in failed(model, batch)
    assert "load_weights seq" in failed(model, step)
    assert model.loss() == before


def test_a_session_that_is_over_says_so_to_its_models_and_samplers(model):
    api = model.api
    sampler = api.made("create_sampling_session", {
        "session_id": model.session_id, "sampling_session_seq_id": 0,
        "base_model": api.server.model_name})["sampling_session_id"]
    api.made(f"sessions/{model.session_id}/finish", {"reason": {"type": "success"}})
    sample = {"sampling_session_id": sampler, "seq_id": 0, "num_samples": 1,
              "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1]}]},
              "sampling_params": {"max_tokens": 1}}
    for answer in [model.forward_backward(), api.post("asample", sample)]:
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["code"] == "session_finished"
        assert f"session {model.session_id} is over (success)" in answer.json()["detail"]
    foreign = RawApi(api.server, api.server.create_key("curious"))
    answer = foreign.post("asample", sample)
    foreign.close()
    assert answer.status_code == 404 and "over" not in answer.text


def test_a_published_checkpoint_stays_so_when_it_is_overwritten(model):
    succeeded(model, send(model, "save_weights", path="a"))
    run = f"training_runs/{model.model_id}/checkpoints"
    assert model.api.post(f"{run}/weights/a/publish").status_code < 300
    succeeded(model, send(model, "save_weights", path="a", overwrite=True))
    assert model.api.get(run).json()["checkpoints"][0]["public"] is True


def test_the_last_training_checkpoint_is_found_behind_many_others(model):
    succeeded(model, send(model, "save_weights", path="start"))
    rolling = [send(model, "save_weights_for_sampler", path=f"s{i}") for i in range(101)]
    succeeded(model, rolling[-1])
    run = model.api.get(f"training_runs/{model.model_id}").json()
    assert run["last_checkpoint"]["tinker_path"] == path_of(model, "start")
    assert run["last_sampler_checkpoint"]["checkpoint_id"] == "sampler_weights/s100"


def test_a_model_that_a_dead_worker_held_goes_on():
    with LatheServer(tiny_model()) as server:
        api = RawApi(server)
        model = RawModel(api)
        send_batch(model, datum())
        send(model, "optim_step", **STEP)
        trained = model.loss()
        server.wait_restarted("worker", server.kill("worker"))
        assert model.loss() == trained
        succeeded(model, send(model, "save_weights", path="a"))
        load = send(model, "load_weights", path=path_of(model, "a"), optimizer=True)
        assert model.loss() == trained
        succeeded(model, load)
        api.close()
