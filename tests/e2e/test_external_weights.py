"""Downloads: external weights, age encryption, the SDK's CLI, archives in ranges, copies."""

import inspect
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request

import httpx
import pytest
import safetensors
import tinker
from tinker import types

DATA = [types.Datum(model_input=types.ModelInput.from_ints([30, 31, 32, 33]),
                    loss_fn_inputs={"target_tokens": [50, 51, 52, 53], "weights": [1.0] * 4})]

pytestmark = pytest.mark.skipif(not hasattr(tinker.TrainingClient, "save_weights_external"),
                                reason="this SDK has no external weights")
needs_age = pytest.mark.skipif(
    "age_encryption_recipients" not in inspect.signature(
        getattr(tinker.TrainingClient, "save_weights_external", len)).parameters,
    reason="this SDK cannot ask for encryption")


@pytest.fixture(scope="module")
def service(lathe):
    return tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key)


@pytest.fixture(scope="module")
def rest(service):
    return service.create_rest_client()


@pytest.fixture(scope="module")
def client(service, lathe):
    made = service.create_lora_training_client(lathe.model_name, rank=4, seed=9)
    for _ in range(3):
        made.forward_backward(DATA, "cross_entropy").result()
        made.optim_step(types.AdamParams(learning_rate=1e-2)).result()
    return made


def files_of(rest, path):
    """The files behind the links of an external checkpoint, by name."""
    answer = rest.get_external_weights_urls(path).result()
    files = {}
    for name, url in answer.urls.items():
        with urllib.request.urlopen(url) as download:
            files[name] = download.read()
            assert int(download.headers["content-length"]) == len(files[name])
    return files


def checkpoint_ids(lathe, run, **headers):
    answer = httpx.get(f"{lathe.url}/api/v1/training_runs/{run}/checkpoints",
                       headers={"X-API-Key": lathe.api_key, **headers})
    return sorted(c["checkpoint_id"] for c in answer.json()["checkpoints"])


def run_of(path):
    return path.removeprefix("tinker://").split("/")[0]


def tinker_cli(lathe, *args, cwd):
    return subprocess.run(
        [sys.executable, "-m", "tinker.cli", *args], cwd=cwd, capture_output=True, text=True,
        timeout=300, env={**os.environ, "TINKER_BASE_URL": lathe.url,
                          "TINKER_API_KEY": lathe.api_key, "HOME": str(cwd)})


@pytest.mark.each_sdk
def test_external_weights_are_a_peft_folder(service, lathe, client, rest, tmp_path):
    path = client.save_weights_external("export").result().path
    assert path == f"tinker://{client.get_info().model_id}/external_weights/export"
    files = files_of(rest, path)
    assert sorted(files) == ["adapter_config.json", "adapter_model.safetensors"]
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    assert json.loads(files["adapter_config.json"])["r"] == 4

    import peft
    import torch
    from transformers import AutoModelForCausalLM
    base = AutoModelForCausalLM.from_pretrained(lathe.model, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(base, str(tmp_path))
    row = [30, 31, 32, 33, 34, 35]
    with torch.no_grad():
        logprobs = model(torch.tensor([row])).logits[0].log_softmax(-1)
    expected = [float(logprobs[i, row[i + 1]]) for i in range(len(row) - 1)]
    sampler = client.save_weights_and_get_sampling_client()
    scored = sampler.compute_logprobs(types.ModelInput.from_ints(row)).result()[1:]
    assert scored == pytest.approx(expected, abs=1e-3)


@pytest.mark.each_sdk
@needs_age
def test_encrypted_files_decrypt_to_the_plain_ones_for_each_recipient(client, rest):
    pyrage = pytest.importorskip("pyrage")
    plain = files_of(rest, client.save_weights_external("plain").result().path)
    identities = [pyrage.x25519.Identity.generate() for _ in range(2)]
    path = client.save_weights_external(
        "sealed", age_encryption_recipients=[str(i.to_public()) for i in identities]).result().path
    sealed = files_of(rest, path)
    assert sorted(sealed) == sorted(f"{name}.age" for name in plain)
    for name, content in plain.items():
        assert content not in sealed[f"{name}.age"]
        for identity in identities:
            assert pyrage.decrypt(sealed[f"{name}.age"], [identity]) == content
    with pytest.raises(pyrage.DecryptError):
        pyrage.decrypt(sealed["adapter_config.json.age"], [pyrage.x25519.Identity.generate()])


@pytest.mark.each_sdk
@needs_age
def test_recipients_of_another_kind_are_refused_by_name(client):
    with pytest.raises(tinker.RequestFailedError, match="SSH"):
        client.save_weights_external(
            "ssh", age_encryption_recipients=["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA"]).result()


def test_external_weights_are_listed_for_clients_that_can_read_them(lathe, client):
    path = client.save_weights_external("listed").result().path
    assert "external_weights/listed" in checkpoint_ids(lathe, run_of(path))
    new = {"X-Stainless-Package-Version": "0.28.0"}
    assert "external_weights/listed" in checkpoint_ids(lathe, run_of(path), **new)
    old = {"X-Stainless-Package-Version": "0.27.2"}
    assert not any("external" in name for name in checkpoint_ids(lathe, run_of(path), **old))
    answer = httpx.get(f"{lathe.url}/api/v1/checkpoints?limit=1000",
                       headers={"X-API-Key": lathe.api_key, **old}).json()
    assert {c["checkpoint_type"] for c in answer["checkpoints"]} <= {"training", "sampler"}
    assert answer["cursor"]["total_count"] == len(answer["checkpoints"])


@pytest.mark.each_sdk
def test_external_weights_are_neither_trained_nor_sampled(service, client):
    path = client.save_weights_external("only-files").result().path
    with pytest.raises(tinker.BadRequestError, match="weights"):
        service.create_training_client_from_state(path).get_info()  # newer SDKs fail here
    with pytest.raises(tinker.BadRequestError, match="download"):
        sampler = service.create_sampling_client(model_path=path)
        sampler.compute_logprobs(types.ModelInput.from_ints([30, 31])).result()


@pytest.mark.each_sdk
@pytest.mark.parametrize("kind", ["weights", "external_weights"])
def test_the_cli_downloads(lathe, client, tmp_path, kind):
    if kind == "external_weights" and tuple(map(int, tinker.__version__.split("."))) < (0, 36):
        pytest.skip("this SDK's command downloads archives only, which external weights have not")
    name = f"cli-{kind.replace('_', '-')}"
    save = client.save_state if kind == "weights" else client.save_weights_external
    path = save(name).result().path
    done = tinker_cli(lathe, "checkpoint", "download", path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    folder = tmp_path / path.removeprefix("tinker://").replace("/", "_")
    if not folder.exists():
        folder = next(p for p in tmp_path.iterdir() if p.name.endswith(name))
    assert json.loads((folder / "adapter_config.json").read_text())["r"] == 4
    with safetensors.safe_open(folder / "adapter_model.safetensors", "pt") as tensors:
        assert any(name.endswith("q_proj.lora_A.weight") for name in tensors.keys())
    # The temporary export is gone.
    listed = httpx.get(f"{lathe.url}/api/v1/checkpoints?limit=1000",
                       headers={"X-API-Key": lathe.api_key}).json()["checkpoints"]
    assert not any(c["checkpoint_id"] == "external_weights/download" for c in listed)


def archive_url(lathe, path):
    run, kind, name = path.removeprefix("tinker://").split("/")
    answer = httpx.get(f"{lathe.url}/api/v1/training_runs/{run}/checkpoints/{kind}/{name}/archive",
                       headers={"X-API-Key": lathe.api_key})
    assert answer.status_code == 302 and "expires" in answer.headers
    return answer.headers["location"]


def test_an_archive_is_continued_where_it_broke_off(lathe, client):
    url = archive_url(lathe, client.save_weights_for_sampler("resumed").result().path)
    head = httpx.head(url)
    whole = httpx.get(url)
    assert head.status_code == 200 and head.content == b""
    assert int(head.headers["content-length"]) == len(whole.content)
    first = httpx.get(url, headers={"Range": "bytes=0-699"})
    assert first.status_code == 206 and len(first.content) == 700
    rest_of_it = httpx.get(url, headers={"Range": "bytes=700-", "If-Range": first.headers["etag"]})
    assert rest_of_it.headers["content-range"] == f"bytes 700-{len(whole.content) - 1}/" \
        f"{len(whole.content)}"
    assert first.content + rest_of_it.content == whole.content
    assert httpx.get(url, headers={"Range": f"bytes={len(whole.content)}-"}).status_code == 416
    with tarfile.open(fileobj=io.BytesIO(whole.content)) as archive:
        assert "adapter_model.safetensors" in archive.getnames()


def test_a_link_cannot_be_changed(lathe, client):
    url = archive_url(lathe, client.save_weights_for_sampler("signed").result().path)
    head, token = url.rsplit("/", 1)
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{head}/{token[:-2]}AA")
    assert error.value.code == 400


def checkpoint_dirs(lathe):
    """Of what has a path; snapshots come and go by themselves."""
    manifests = lathe.checkpoints.glob("c*/manifest.json")
    named = {one.parent.name for one in manifests if "tinker_path" in one.read_text()}
    return named & lathe.stored_dirs()


def test_an_expired_checkpoint_goes_from_listings_and_disk(lathe, client, rest):
    before = checkpoint_dirs(lathe)
    path = client.save_weights_external("brief", ttl_seconds=3600).result().path
    made = checkpoint_dirs(lathe) - before
    assert len(made) == 1
    httpx.put(f"{lathe.url}/api/v1/training_runs/{run_of(path)}/checkpoints/external_weights/"
              "brief/ttl", headers={"X-API-Key": lathe.api_key}, json={"ttl_seconds": 1})
    deadline = time.monotonic() + 60
    while made & checkpoint_dirs(lathe) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not made & checkpoint_dirs(lathe)
    assert "external_weights/brief" not in checkpoint_ids(lathe, run_of(path))
    with pytest.raises(tinker.NotFoundError):
        rest.get_external_weights_urls(path).result()


def losses(made, count):
    values = []
    for _ in range(count):
        values.append(made.forward_backward(DATA, "cross_entropy").result().metrics["loss:sum"])
        made.optim_step(types.AdamParams(learning_rate=1e-2)).result()
    return values


@pytest.mark.each_sdk
def test_a_token_of_the_owner_loads_into_another_account(lathe, client, service):
    path = client.save_state("lent").result().path
    expected = losses(service.create_training_client_from_state_with_optimizer(path), 2)
    other = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.create_key("borrower"))
    with pytest.raises(tinker.APIStatusError):
        other.create_training_client_from_state(path).get_info()
    with pytest.raises(tinker.APIStatusError):
        other.create_training_client_from_state(
            path, weights_access_token="tml-wrong").get_info()
    lent = other.create_training_client_from_state_with_optimizer(
        path, weights_access_token=lathe.api_key)
    assert losses(lent, 2) == pytest.approx(expected, rel=1e-6)
    assert not any("tml-" in line and lathe.api_key in line for line in lathe.output().splitlines())


def test_a_copy_lives_on_without_its_source(lathe, client):
    path = client.save_state("to-copy").result().path
    other_key = lathe.create_key("copier")
    copy = lambda source, key, idempotency, **headers: httpx.post(
        f"{lathe.url}/api/v1/copy_weights", json={"source_path": source},
        headers={"X-API-Key": key, "X-Idempotency-Key": idempotency, **headers})
    assert copy(path, other_key, "a").status_code == 404
    token = {"X-Tinker-Weights-Access-Token": lathe.api_key}
    assert copy(path, other_key, "a", **{**token, "X-Tinker-Weights-Access-Token": "x"}
                ).status_code == 403
    for scope, status in (("sample", 403), ("train", 403), ("read", 200)):
        of_scope = lathe.create_key("default", [scope])
        answer = copy(path, other_key, scope, **{"X-Tinker-Weights-Access-Token": of_scope})
        assert answer.status_code == status, scope
    first = copy(path, other_key, "b", **token)
    assert first.status_code == 200
    assert copy(path, other_key, "b", **token).json() == first.json()
    copied = first.json()["tinker_path"]
    assert copied.endswith("/weights/to-copy") and copied != path
    httpx.delete(f"{lathe.url}/api/v1/training_runs/{run_of(path)}/checkpoints/weights/to-copy",
                 headers={"X-API-Key": lathe.api_key}).raise_for_status()
    other = tinker.ServiceClient(base_url=lathe.url, api_key=other_key)
    resumed = other.create_training_client_from_state_with_optimizer(copied)
    assert losses(resumed, 1)[0] > 0
    run = other.create_rest_client().get_training_run(run_of(copied)).result()
    assert run.last_checkpoint.tinker_path == copied
