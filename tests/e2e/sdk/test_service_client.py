"""ServiceClient, method by method."""

import httpx
import tinker
from support.sdk import resolved
from support.sdk_matrix import sdk_method
from tinker import types

from .conftest import ADAM, DATA, new_model

PROMPT = types.ModelInput.from_ints([30, 31, 32])
GREEDY = types.SamplingParams(max_tokens=4, temperature=0, stop=[])


def loss_of(client):
    return client.forward(DATA, "cross_entropy").result().metrics["loss:sum"]


@sdk_method("ServiceClient.get_server_capabilities")
def test_get_server_capabilities(answer, service, lathe):
    """lists the served base models with their context lengths"""
    with answer(service) as capabilities:
        assert [m.model_name for m in capabilities.supported_models] == [lathe.model_name]
        assert capabilities.supported_models[0].max_context_length == 2048


@sdk_method("ServiceClient.create_lora_training_client")
def test_create_lora_training_client(answer, service, lathe):
    """creates a model of LoRA rank 1 to 512; uses `seed`, `train_attn`, `train_mlp`,
    `train_unembed`, and from `user_metadata` the adapter's `lathe_lora_alpha` and
    `lathe_target_modules` ([api.md](api.md#the-shape-of-adapters))"""
    with answer(service, lathe.model_name, rank=6, seed=3) as client:
        info = client.get_info()
        assert info.lora_rank == 6 and info.model_id == client.model_id


@sdk_method("ServiceClient.create_training_client_from_state")
def test_create_training_client_from_state(answer, service, trained, saved):
    """creates a model with the checkpoint's weights and a new optimizer"""
    with answer(service, saved) as client:
        assert loss_of(client) == loss_of(trained)


@sdk_method("ServiceClient.create_training_client_from_state_with_optimizer")
def test_create_training_client_from_state_with_optimizer(answer, service, lathe, fresh_name):
    """creates a model with the checkpoint's weights, moments and step count"""
    model = new_model(service, lathe)
    path = model.save_state(fresh_name).result().path
    model.forward_backward(DATA, "cross_entropy").result()
    model.optim_step(ADAM).result()
    with answer(service, path) as client:
        client.forward_backward(DATA, "cross_entropy").result()
        client.optim_step(ADAM).result()
        assert loss_of(client) == loss_of(model)


@sdk_method("ServiceClient.create_sampling_client")
def test_create_sampling_client(answer, service, base, lathe):
    """makes a client that samples from the base model or from a `tinker://` path"""
    with answer(service, base_model=lathe.model_name) as sampler:
        expected = base.sample(PROMPT, 1, GREEDY).result().sequences[0].tokens
        assert sampler.sample(PROMPT, 1, GREEDY).result().sequences[0].tokens == expected


@sdk_method("ServiceClient.create_rest_client")
def test_create_rest_client(answer, service, run_id):
    """makes a client for listings and checkpoints, see RestClient"""
    with answer(service) as rest:
        assert rest.get_training_run(run_id).result().training_run_id == run_id


@sdk_method("ServiceClient.close")
def test_close(answer, lathe):
    """finishes the session and frees its models; checkpoints stay"""
    key = lathe.create_key("closer")
    service = tinker.ServiceClient(base_url=lathe.url, api_key=key)
    session = new_model(service, lathe, steps=0).get_info().model_id.split(":")[0]
    with answer(service, "success") as nothing:
        heartbeat = httpx.post(f"{lathe.url}/api/v1/session_heartbeat", headers={"X-API-Key": key},
                          json={"session_id": session, "type": "session_heartbeat"})
        assert nothing is None and heartbeat.status_code == 410


@sdk_method("ServiceClient.copy_weights")
def test_copy_weights(answer, lathe, trained, saved):
    """copies a checkpoint into a new run; the copy shares the files and outlives its source"""
    service = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key, project_id="copies")
    with answer(service, saved) as path:
        assert path != saved
        assert loss_of(resolved(service.create_training_client_from_state(path))) \
            == loss_of(trained)


@sdk_method("ServiceClient.create_custom_loss")
def test_create_custom_loss(answer, service, lathe):
    """the SDK traces the loss and runs it in the user's process"""
    model = new_model(service, lathe, steps=0)

    def squared(logprobs, weights):
        loss = (logprobs * weights).sum().pow(2)
        return loss, {"custom/squared:sum": loss}

    with answer(service, squared, {"logprobs": 1, "weights": 1}) as handle:
        before = model.forward_backward_custom(DATA, handle).result().metrics["custom/squared:sum"]
        model.optim_step(ADAM).result()
        assert model.forward_backward_custom(DATA, handle).result().metrics["custom/squared:sum"] < before
