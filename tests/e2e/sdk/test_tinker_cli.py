"""The SDK's program `tinker`, command by command."""

import json

from support.sdk_matrix import Cli, sdk_method

from .conftest import this_hour


@sdk_method("tinker.run list")
def test_run_list(answer, cli, run_id):
    """lists the tenant's runs"""
    with answer(cli, "--limit", "0") as listed:
        assert run_id in [run["training_run_id"] for run in listed["runs"]]


@sdk_method("tinker.run info")
def test_run_info(answer, cli, run_id, lathe):
    """shows the base model, LoRA rank and last checkpoints of a run"""
    with answer(cli, run_id) as run:
        assert run["base_model"] == lathe.model_name and run["lora_rank"] == 4


@sdk_method("tinker.checkpoint list")
def test_checkpoint_list(answer, cli, run_id, saved):
    """lists the checkpoints of one run or of all runs"""
    with answer(cli, "--run-id", run_id) as listed:
        assert saved in [checkpoint["tinker_path"] for checkpoint in listed["checkpoints"]]


@sdk_method("tinker.checkpoint info")
def test_checkpoint_info(answer, cli, saved):
    """shows the size and expiry of a checkpoint, and whether it is public"""
    with answer(cli, saved) as checkpoint:
        assert checkpoint["tinker_path"] == saved and not checkpoint["public"]


def is_public(rest, path):
    run = path.removeprefix("tinker://").split("/")[0]
    return next(c.public for c in rest.list_checkpoints(run).result().checkpoints
                if c.tinker_path == path)


@sdk_method("tinker.checkpoint publish")
def test_checkpoint_publish(answer, cli, rest, saved):
    """lets anyone with a key load the checkpoint and sample from it"""
    with answer(cli, saved) as said:
        assert said is not None and is_public(rest, saved)


@sdk_method("tinker.checkpoint unpublish")
def test_checkpoint_unpublish(answer, cli, rest, saved):
    """restricts the checkpoint to its owner again"""
    rest.publish_checkpoint_from_tinker_path(saved).result()
    with answer(cli, saved) as said:
        assert said is not None and not is_public(rest, saved)


@sdk_method("tinker.checkpoint set-ttl")
def test_checkpoint_set_ttl(answer, cli, rest, saved):
    """sets the time until the checkpoint expires, or removes its expiry"""
    with answer(cli, saved, "--ttl", "7200") as said:
        run = saved.removeprefix("tinker://").split("/")[0]
        listed = rest.list_checkpoints(run).result().checkpoints
        assert said is not None
        assert next(c.expires_at for c in listed if c.tinker_path == saved) is not None


@sdk_method("tinker.checkpoint delete")
def test_checkpoint_delete(answer, cli, rest, saved):
    """deletes a checkpoint with its files"""
    with answer(cli, "--yes", saved) as said:
        run = saved.removeprefix("tinker://").split("/")[0]
        assert said is not None
        assert saved not in [c.tinker_path for c in rest.list_checkpoints(run).result().checkpoints]


@sdk_method("tinker.model list")
def test_model_list(answer, cli, lathe):
    """lists the served base models"""
    with answer(cli) as listed:
        assert lathe.model_name in str(listed)


@sdk_method("tinker.billing usage")
def test_billing_usage(answer, lathe, billed):
    """shows tokens and checkpoints by hour, session and base model; there are no prices"""
    cli = Cli(lathe.url, lathe.create_key("billed", scopes=["read"]), own_process=True)
    begin, end = this_hour()
    with answer(cli, begin.isoformat(), end.isoformat()) as usage:
        assert {row["event_info"]["type"]: row["event_info"].get("token_count")
                for row in usage["data"] if row["session_id"] == billed[1]} == {
                    "training": 12, "sampling_prefill": 3, "sampling_sample": 5,
                    "checkpoint": None}


@sdk_method("tinker.billing checkpoint-storage")
def test_billing_checkpoint_storage(answer, lathe, billed):
    """shows the number and size of the stored checkpoints by project; there are no prices"""
    cli = Cli(lathe.url, lathe.create_key("billed", scopes=["read"]), own_process=True)
    with answer(cli, "--project-id", "first") as usage:
        assert [row["checkpoint_count"] for row in usage["data"]] == [1]


@sdk_method("tinker.auth status")
def test_auth_status(answer, cli):
    """shows whether the key works"""
    with answer(cli) as status:
        assert "Tinker accessible: yes" in status


@sdk_method("tinker.auth login")
def test_auth_login(answer, lathe, tmp_path):
    """checks a pasted key and stores it"""
    key = lathe.create_key("cli-login")
    with answer(Cli(lathe.url, home=tmp_path, stdin=key + "\n")) as said:
        assert "cli-login" in said
        assert key in (tmp_path / ".tinker" / "credentials.json").read_text()


@sdk_method("tinker.auth logout")
def test_auth_logout(answer, lathe, tmp_path):
    """removes the stored key"""
    key = lathe.create_key("cli-logout")
    getattr(Cli(lathe.url, home=tmp_path, stdin=key + "\n"), "auth login")()
    with answer(Cli(lathe.url, home=tmp_path)) as said:
        kept = tmp_path / ".tinker" / "credentials.json"
        assert said is not None and (not kept.exists() or key not in kept.read_text())


@sdk_method("tinker.auth whoami")
def test_auth_whoami(answer, jwt_lathe):
    """shows key and tenant if tokens are on (`gateway.jwt_auth`)"""
    with answer(Cli(jwt_lathe.url, jwt_lathe.create_key("cli-who"),
                    own_process=True)) as said:
        assert "tml:organization:cli-who" in str(said)


@sdk_method("tinker.checkpoint download")
def test_checkpoint_download(answer, cli, saved, tmp_path):
    """downloads a PEFT folder: SDKs until 0.35 use the archive, SDKs since 0.36 external weights"""
    with answer(cli, saved, "--output", str(tmp_path)) as said:
        assert said is not None
        folder = next(path for path in tmp_path.iterdir() if path.is_dir())
        assert json.loads((folder / "adapter_config.json").read_text())["r"] == 4
        assert (folder / "adapter_model.safetensors").stat().st_size > 0


@sdk_method("tinker.session export-trace")
def test_session_export_trace(answer, cli, run_id, tmp_path):
    """downloads the session's Perfetto file"""
    file = tmp_path / "trace.pftrace"
    with answer(cli, run_id.split(":")[0], "--output", str(file)) as said:
        assert said["file_size_bytes"] == file.stat().st_size
        assert json.loads(file.read_text())["otherData"]["session_id"] == run_id.split(":")[0]
