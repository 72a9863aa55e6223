"""Checkpoints, listings and resumption through the stock SDK."""

import io
import json
import tarfile
import urllib.request

import httpx
import pytest
import tinker
from support.sdk import VERSION
from tinker import types

DATA = [types.Datum(model_input=types.ModelInput.from_ints([30, 31, 32, 33]),
                    loss_fn_inputs={"target_tokens": [50, 51, 52, 53], "weights": [1.0] * 4})]
ADAM = types.AdamParams(learning_rate=1e-2)


@pytest.fixture(scope="module")
def service(lathe):
    return tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key)


@pytest.fixture(scope="module")
def rest(service):
    return service.create_rest_client()


def trained(service, lathe, steps=2, **options):
    client = service.create_lora_training_client(
        lathe.model_name, rank=4, seed=9, **options)
    step(client, steps)
    return client


def step(client, count):
    losses = []
    for _ in range(count):
        losses.append(client.forward_backward(DATA, "cross_entropy").result().metrics["loss:sum"])
        client.optim_step(ADAM).result()
    return losses


def model_id_of(client):
    return client.get_info().model_id


@pytest.mark.each_sdk
def test_resume_with_optimizer_continues_the_same_losses(service, lathe):
    client = trained(service, lathe)
    path = client.save_state("resume").result().path
    assert path == f"tinker://{model_id_of(client)}/weights/resume"
    expected = step(client, 3)
    assert step(service.create_training_client_from_state_with_optimizer(path), 3) \
        == pytest.approx(expected, rel=1e-6)
    warm = step(service.create_training_client_from_state(path), 3)
    assert warm[0] == pytest.approx(expected[0], rel=1e-6)
    assert warm[2] != pytest.approx(expected[2], rel=1e-6)


@pytest.mark.each_sdk
def test_load_state_replaces_the_weights_of_a_live_model(service, lathe):
    client = trained(service, lathe)
    path = client.save_state("again").result().path
    expected = step(client, 2)
    client.load_state_with_optimizer(path).result()
    assert step(client, 2) == pytest.approx(expected, rel=1e-6)


@pytest.mark.each_sdk
def test_a_name_is_taken_once_unless_overwritten(service, lathe, rest):
    client = trained(service, lathe)
    client.save_state("once").result()
    with pytest.raises(tinker.RequestFailedError, match="once"):
        client.save_state("once").result()
    # The other kind has its own names.
    client.save_weights_for_sampler("once").result()
    if "overwrite" in tinker.TrainingClient.save_state.__code__.co_varnames:
        client.save_state("once", overwrite=True).result()
        kinds = [c.checkpoint_id for c in rest.list_checkpoints(model_id_of(client)).result()
                 .checkpoints]
        assert sorted(kinds) == ["sampler_weights/once", "weights/once"]


@pytest.mark.each_sdk
def test_listings_show_what_was_saved_and_deletes_take_it_away(service, lathe, rest):
    client = trained(service, lathe, user_metadata={"renderer_name": "role_colon"})
    path = client.save_state("listed").result().path
    run = rest.get_training_run(model_id_of(client)).result()
    assert run.base_model == lathe.model_name and run.is_lora and run.lora_rank == 4
    assert run.user_metadata == {"renderer_name": "role_colon"}
    assert run.last_checkpoint.tinker_path == path
    assert rest.get_training_run_by_tinker_path(path).result().training_run_id == model_id_of(client)
    runs = rest.list_training_runs(limit=100).result()
    assert model_id_of(client) in [r.training_run_id for r in runs.training_runs]
    listed = rest.list_checkpoints(model_id_of(client)).result().checkpoints
    assert [(c.checkpoint_id, c.checkpoint_type) for c in listed] == [("weights/listed", "training")]
    assert listed[0].size_bytes > 0 and not listed[0].public
    assert path in [c.tinker_path for c in
                    rest.list_user_checkpoints(limit=1000).result().checkpoints]
    rest.delete_checkpoint_from_tinker_path(path).result()
    assert rest.list_checkpoints(model_id_of(client)).result().checkpoints == []


@pytest.mark.each_sdk
def test_publish_ttl_and_foreign_access(service, lathe, rest):
    client = trained(service, lathe)
    path = client.save_state("shared").result().path
    other = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.create_key("stranger"))
    other_rest = other.create_rest_client()
    with pytest.raises(tinker.APIStatusError):
        other_rest.get_weights_info_by_tinker_path(path).result()
    rest.publish_checkpoint_from_tinker_path(path).result()
    rest.publish_checkpoint_from_tinker_path(path).result()
    info = other_rest.get_weights_info_by_tinker_path(path).result()
    assert info.base_model == lathe.model_name and info.is_lora and info.lora_rank == 4
    assert step(other.create_training_client_from_state(path), 1)[0] > 0
    with pytest.raises(tinker.APIStatusError):
        other_rest.delete_checkpoint_from_tinker_path(path).result()
    rest.unpublish_checkpoint_from_tinker_path(path).result()
    with pytest.raises(tinker.APIStatusError):
        other_rest.get_weights_info_by_tinker_path(path).result()
    rest.set_checkpoint_ttl_from_tinker_path(path, 3600).result()
    listed = rest.list_checkpoints(model_id_of(client)).result().checkpoints[0]
    assert listed.expires_at is not None
    rest.set_checkpoint_ttl_from_tinker_path(path, None).result()
    assert rest.list_checkpoints(model_id_of(client)).result().checkpoints[0].expires_at is None


def archive_of(lathe, path):
    run, kind, name = path.removeprefix("tinker://").split("/")
    answer = httpx.get(
        f"{lathe.url}/api/v1/training_runs/{run}/checkpoints/{kind}/{name}/archive",
        headers={"X-API-Key": lathe.api_key}, follow_redirects=False)
    assert answer.status_code == 302
    with urllib.request.urlopen(answer.headers["location"]) as download:
        body = download.read()
        assert int(download.headers["content-length"]) == len(body)
    return tarfile.open(fileobj=io.BytesIO(body))


def test_the_archive_is_a_peft_folder(service, lathe, tmp_path):
    client = trained(service, lathe, steps=5)
    path = client.save_weights_for_sampler("export").result().path
    with archive_of(lathe, path) as archive:
        names = set(archive.getnames())
        assert {"adapter_model.safetensors", "adapter_config.json", "checkpoint_complete"} <= names
        assert not any("/" in name for name in names)
        archive.extractall(tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["r"] == 4 and config["lora_alpha"] == 32

    import peft
    import torch
    from transformers import AutoModelForCausalLM
    base = AutoModelForCausalLM.from_pretrained(lathe.model, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(base, str(tmp_path))
    row = [30, 31, 32, 33, 34, 35]
    with torch.no_grad():
        logprobs = model(torch.tensor([row])).logits[0].log_softmax(-1)
    expected = [float(logprobs[i, row[i + 1]]) for i in range(len(row) - 1)]
    sampler = service.create_sampling_client(model_path=path)
    scored = sampler.compute_logprobs(types.ModelInput.from_ints(row)).result()[1:]
    assert scored == pytest.approx(expected, abs=1e-3)


@pytest.mark.each_sdk
def test_the_sdk_hands_out_the_archive_url(service, lathe, rest):
    if not hasattr(rest, "get_checkpoint_archive_url_from_tinker_path"):
        pytest.skip("this SDK has no archive call any more")
    client = trained(service, lathe)
    path = client.save_weights_for_sampler("url").result().path
    url = rest.get_checkpoint_archive_url_from_tinker_path(path).result().url
    with urllib.request.urlopen(url) as download:
        assert download.read(1)


@pytest.mark.each_sdk
def test_sessions_list_their_runs_and_samplers(lathe):
    service = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.create_key("sessions"))
    client = trained(service, lathe)
    sampler = client.save_weights_and_get_sampling_client()
    sampler.sample(types.ModelInput.from_ints([30]), 1,
                   types.SamplingParams(max_tokens=1, seed=1)).result()
    rest = service.create_rest_client()
    sessions = rest.list_sessions().result().sessions
    model_id = model_id_of(client)
    session_id = model_id.split(":")[0]
    assert session_id in sessions
    session = rest.get_session(session_id).result()
    assert session.training_run_ids == [model_id]
    assert len(session.sampler_ids) == 1
    described = rest.get_sampler(session.sampler_ids[0]).result()
    assert described.base_model == lathe.model_name


def test_a_finished_session_frees_its_models_and_keeps_checkpoints(lathe):
    key = lathe.create_key("finisher")
    service = tinker.ServiceClient(base_url=lathe.url, api_key=key)
    client = trained(service, lathe)
    path = client.save_state("kept").result().path
    session_id = model_id_of(client).split(":")[0]
    headers = {"X-API-Key": key}
    finish = lambda: httpx.post(
        f"{lathe.url}/api/v1/sessions/{session_id}/finish", headers=headers,
        json={"reason": {"type": "success"}, "detail": None})
    assert finish().status_code == 200
    assert finish().status_code == 200
    heartbeat = httpx.post(f"{lathe.url}/api/v1/session_heartbeat", headers=headers,
                      json={"session_id": session_id, "type": "session_heartbeat"})
    assert heartbeat.status_code == 410
    fresh = tinker.ServiceClient(base_url=lathe.url, api_key=key)
    assert step(fresh.create_training_client_from_state(path), 1)[0] > 0


@pytest.mark.each_sdk
def test_a_checkpoint_keeps_what_its_save_said_of_it(service, lathe, rest):
    client = trained(service, lathe)
    client.save_state("kept", ttl_seconds=7200).result()
    client.save_weights_for_sampler("for-ever").result()
    listed = {c.checkpoint_id: c for c in
              rest.list_checkpoints(model_id_of(client)).result().checkpoints}
    kept = listed["weights/kept"]
    assert 7100 < (kept.expires_at - kept.time).total_seconds() < 7300
    assert listed["sampler_weights/for-ever"].expires_at is None
    if "user_metadata" in tinker.TrainingClient.save_state.__code__.co_varnames:
        client.save_state("noted", user_metadata={"step": "2"}).result()
        noted = next(c for c in rest.list_checkpoints(model_id_of(client)).result().checkpoints
                     if c.checkpoint_id == "weights/noted")
        assert noted.user_metadata == {"step": "2"}


@pytest.mark.each_sdk
def test_closing_the_client_finishes_its_session(lathe):
    if not hasattr(tinker.ServiceClient, "close"):
        pytest.skip("this SDK cannot close a client; the route is tested over plain HTTP")
    key = lathe.create_key("closer")
    named = {"display_name": "a run"} if VERSION >= (0, 34) else {}
    with tinker.ServiceClient(base_url=lathe.url, api_key=key, user_metadata={"team": "blue"},
                              **named) as service:
        model_id = model_id_of(trained(service, lathe))
        session = service.create_rest_client().get_session(model_id.split(":")[0]).result()
        assert getattr(session, "display_name", None) == named.get("display_name")
        assert session.user_metadata == {"team": "blue"}
    heartbeat = httpx.post(f"{lathe.url}/api/v1/session_heartbeat", headers={"X-API-Key": key},
                      json={"session_id": model_id.split(":")[0], "type": "session_heartbeat"})
    assert heartbeat.status_code == 410


@pytest.mark.each_sdk
def test_the_asynchronous_calls_do_the_same(lathe):
    import asyncio

    async def run():
        service = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.create_key("async"))
        client = await service.create_lora_training_client_async(lathe.model_name, rank=4, seed=9)
        loss = await client.forward_backward_async(DATA, "cross_entropy")
        await client.optim_step_async(ADAM)
        first = (await loss.result_async()).metrics["loss:sum"]
        path = (await (await client.save_state_async("async")).result_async()).path
        resumed = await service.create_training_client_from_state_with_optimizer_async(path)
        again = await resumed.forward_backward_async(DATA, "cross_entropy")
        sampler = await client.save_weights_and_get_sampling_client_async()
        sampled = await sampler.sample_async(
            types.ModelInput.from_ints([30, 31]), 1, types.SamplingParams(max_tokens=3, stop=[]))
        return first, (await again.result_async()).metrics["loss:sum"], sampled

    first, again, sampled = asyncio.run(run())
    assert again < first
    assert len(sampled.sequences[0].tokens) == 3
