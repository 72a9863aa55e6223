"""Alpha and target modules by server and by model, and what checkpoints keep of them."""

import json
import pathlib
import subprocess

import pytest
import tinker
from support.lathe_server import BIN, LatheServer, tiny_model
from support.raw_api import RawApi
from test_checkpoints import ADAM, DATA, model_id_of, step

SHAPE = {"lathe_lora_alpha": "16", "lathe_target_modules": "down_proj,q_proj"}
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]


@pytest.fixture(scope="module")
def service(lathe):
    return tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key)


def folder_of(lathe, path):
    """Directory of the checkpoint that `path` names."""
    for manifest in lathe.checkpoints.glob("*/manifest.json"):
        if json.loads(manifest.read_text()).get("tinker_path") == path:  # snapshots have none
            return manifest.parent
    raise AssertionError(path)


def saved_shape(lathe, client, name):
    """Alpha and modules of what the model saves now; PEFT's file and ours say the same."""
    folder = folder_of(lathe, client.save_state(name).result().path)
    lora = json.loads((folder / "manifest.json").read_text())["lora"]
    peft = json.loads((folder / "adapter_config.json").read_text())
    assert (peft["r"], peft["lora_alpha"]) == (lora["rank"], lora["alpha"])
    assert sorted(peft["target_modules"]) == sorted(lora["target_modules"])
    return lora["alpha"], lora["target_modules"]


def test_metadata_shapes_a_model_and_every_load_keeps_the_shape(service, lathe):
    client = service.create_lora_training_client(
        lathe.model_name, rank=4, seed=9, user_metadata=SHAPE)
    losses = step(client, 4)
    assert losses[-1] < losses[0]
    expected = (16, ["q_proj", "down_proj"])
    assert saved_shape(lathe, client, "shaped") == expected
    path = f"tinker://{model_id_of(client)}/weights/shaped"
    following = step(client, 1)

    created = service.create_training_client_from_state_with_optimizer(path)
    assert saved_shape(lathe, created, "again") == expected
    assert step(created, 1) == pytest.approx(following, rel=1e-6)
    # Into a model that was made with the server's own alpha and modules.
    loaded = service.create_lora_training_client(lathe.model_name, rank=4, seed=1)
    loaded.load_state_with_optimizer(path).result()
    assert saved_shape(lathe, loaded, "again") == expected
    assert step(loaded, 1) == pytest.approx(following, rel=1e-6)
    assert loaded.get_info().lora_rank == 4


def test_adapters_of_all_shapes_train_side_by_side_as_alone(service, lathe):
    shapes = [{}, SHAPE, {"lathe_lora_alpha": "64", "lathe_target_modules": "lm_head"},
              {"lathe_target_modules": "v_proj,up_proj"}]

    def make(shape):
        return service.create_lora_training_client(
            lathe.model_name, rank=4, seed=9, user_metadata=shape)

    alone = [step(make(shape), 3) for shape in shapes]
    clients = [make(shape) for shape in shapes]
    together = [[] for _ in shapes]
    for _ in range(3):
        passes = [client.forward_backward(DATA, "cross_entropy") for client in clients]
        steps = [client.optim_step(ADAM) for client in clients]
        for losses, result in zip(together, passes):
            losses.append(result.result().metrics["loss:sum"])
        for result in steps:
            result.result()
    for one, other in zip(alone, together):
        assert one == pytest.approx(other, rel=1e-4)


def test_a_load_does_not_contradict_its_metadata(service, lathe):
    client = service.create_lora_training_client(
        lathe.model_name, rank=2, seed=9, user_metadata=SHAPE)
    path = client.save_state("kept").result().path
    # As programs resume: with the metadata of the first run.
    service.create_training_client_from_state(path, user_metadata=SHAPE)
    api = RawApi(lathe)
    answer = api.post("load_weights", {
        "session_id": api.new_session(), "model_seq_id": 0, "path": path, "optimizer": False,
        "user_metadata": {"lathe_lora_alpha": "8"}, "type": "load_weights"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == (
        f"user_metadata.lathe_lora_alpha is 8, checkpoint {path} has 16 and a load keeps it")
    api.close()


def test_the_servers_defaults_and_a_crash():
    env = {"LATHE_LORA__ALPHA": "8", "LATHE_LORA__TARGET_MODULES": "v_proj,q_proj"}
    with LatheServer(tiny_model(), env=env) as server:
        service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
        plain = service.create_lora_training_client(server.model_name, rank=4, seed=9)
        shaped = service.create_lora_training_client(
            server.model_name, rank=4, seed=9, user_metadata=SHAPE)
        step(plain, 1)
        old_pid = server.kill("engine")
        server.wait_restarted("engine", old_pid)
        assert saved_shape(server, plain, "plain") == (8, ["q_proj", "v_proj"])
        assert saved_shape(server, shaped, "shaped") == (16, ["q_proj", "down_proj"])


@pytest.mark.parametrize("variable, value, words", [
    ("LATHE_LORA__ALPHA", "0", ["lora.alpha is 0", "above 0"]),
    ("LATHE_LORA__TARGET_MODULES", "q_proj,q", ["lora.target_modules has 'q'", *ALL]),
    ("LATHE_ENGINE__SAMPLER_VERSIONS_MIB", "-1", ["sampler_versions_mib is -1, minimum is 0"])])
def test_options_out_of_range_stop_the_engine(tmp_path, variable, value, words):
    done = subprocess.run([BIN / "lathe-engine", "--data-dir", tmp_path], capture_output=True,
                          text=True, timeout=60, env={"PATH": "/usr/bin:/bin", variable: value})
    assert done.returncode == 78
    for word in words:
        assert word in done.stderr


def test_a_checkpoint_is_exported_by_its_path(service, lathe, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM
    client = service.create_lora_training_client(
        lathe.model_name, rank=4, seed=9, user_metadata=SHAPE)
    step(client, 5)
    path = client.save_weights_for_sampler("merge").result().path
    out = tmp_path / "merged"
    command = [BIN / "lathe", "export", "--merged", path, "--model", lathe.model, "--out", out,
               "--data-dir", lathe.data_dir]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=lathe.env)
    assert done.returncode == 0, done.stderr
    again = subprocess.run(command, capture_output=True, text=True, timeout=120, env=lathe.env)
    assert again.returncode == 73 and f"{out} exists" in again.stderr
    absent = subprocess.run([*command[:3], path + "x", *command[4:]], capture_output=True,
                            text=True, timeout=120, env=lathe.env)
    assert absent.returncode == 78 and "checkpoint_missing" in absent.stderr

    without = [word for word in command if word != "--merged"]
    done = subprocess.run(without, capture_output=True, text=True, timeout=120, env=lathe.env)
    assert done.returncode == 2 and "--merged is missing" in done.stderr

    row = [30, 31, 32, 33, 34, 35]
    merged = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    with torch.no_grad():
        logprobs = merged(torch.tensor([row])).logits[0].log_softmax(-1)
    expected = [float(logprobs[i, row[i + 1]]) for i in range(len(row) - 1)]
    sampler = service.create_sampling_client(model_path=path)
    scored = sampler.compute_logprobs(tinker.types.ModelInput.from_ints(row)).result()[1:]
    assert scored == pytest.approx(expected, abs=1e-4)


def test_http_says_it_in_lora_config(lathe):
    api = RawApi(lathe)
    body = {"session_id": api.new_session(), "model_seq_id": 0, "base_model": lathe.model_name}
    created = api.result(api.made("create_model", {
        **body, "lora_config": {"rank": 2, "alpha": 4, "target_modules": ["v_proj"]}}))
    saved = api.result(api.made("save_weights", {
        "model_id": created["model_id"], "seq_id": 1, "path": "http"}))
    manifest = json.loads((folder_of(lathe, saved["path"]) / "manifest.json").read_text())
    assert (manifest["lora"]["alpha"], manifest["lora"]["target_modules"]) == (4, ["v_proj"])
    answer = api.post("create_model", {
        **body, "model_seq_id": 1, "lora_config": {"rank": 2, "alpha": -4}})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "lora_config.alpha"
    api.close()
