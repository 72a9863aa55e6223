"""The base model of a server is replaced by another one, or has another name."""

import os

import pytest
from support.lathe_server import LatheServer, tiny_model
from support.raw_api import ADAM, RawApi, RawModel


def sample_of(session_id):
    return {"sampling_session_id": f"{session_id}:sample:0", "seq_id": 0, "num_samples": 1,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1]}]},
            "sampling_params": {"max_tokens": 1}}


def sampler_of(session_id, number, base_model):
    return {"session_id": session_id, "sampling_session_seq_id": number, "base_model": base_model}


@pytest.fixture(scope="module")
def replaced(tmp_path_factory):
    """A server of org/new, on a data directory of one that served old, and a session from then."""
    data_dir = str(tmp_path_factory.mktemp("data"))
    with LatheServer(tiny_model(), name="old", data_dir=data_dir) as server:
        api = RawApi(server)
        model = RawModel(api)
        info = api.made("get_info", {"model_id": model.model_id})
        assert os.path.isabs(info["model_data"]["tokenizer_id"])
        api.result(api.made("save_weights", {"model_id": model.model_id, "seq_id": 1, "path": "a"}))
        api.made("create_sampling_session", sampler_of(model.session_id, 0, "old"))
        api.close()
    with LatheServer(tiny_model(), name="org/new", data_dir=data_dir) as server:
        api = RawApi(server)
        yield api, model
        api.close()


def test_only_what_is_served_is_advertised(replaced):
    api, _ = replaced
    models = api.get("get_server_capabilities").json()["supported_models"]
    assert [model["model_name"] for model in models] == ["org/new"]


def test_work_on_the_old_one_is_refused_by_name(replaced):
    api, model = replaced
    session_id = model.session_id
    for path, body in [
            ("create_model", {"session_id": session_id, "model_seq_id": 1, "base_model": "old"}),
            ("load_weights", {"session_id": session_id, "model_seq_id": 1, "optimizer": False,
                              "path": f"tinker://{model.model_id}/weights/a"}),
            ("create_sampling_session", sampler_of(session_id, 1, "old")),
            ("asample", sample_of(session_id))]:
        answer = api.post(path, body)
        assert answer.status_code == 404, (path, answer.text)
        assert answer.json()["error"]["code"] == "unknown_base_model"
        assert "org/new" in answer.json()["detail"]


def test_a_model_of_the_old_one_cannot_go_on(replaced):
    api, model = replaced
    for seq_id, (path, body) in enumerate([
            ("optim_step", {"adam_params": ADAM}),
            ("load_weights", {"path": f"tinker://{model.model_id}/weights/a"})], start=2):
        future = api.made(path, {"model_id": model.model_id, "seq_id": seq_id, **body})
        assert "error" in api.result(future)


def test_clients_find_the_tokenizer_by_a_name_like_a_hub_id(replaced):
    api, _ = replaced
    model = RawModel(api)
    info = api.made("get_info", {"model_id": model.model_id})
    assert info["model_data"] == {"model_name": "org/new", "arch": "qwen3", "tokenizer_id": None}
