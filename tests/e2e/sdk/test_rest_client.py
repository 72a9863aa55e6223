"""RestClient, method by method."""

import datetime

from support.sdk import resolved
from support.sdk_matrix import sdk_method


@sdk_method("RestClient.get_server_capabilities")
def test_get_server_capabilities(answer, rest, lathe):
    """the served model and its context length"""
    with answer(rest) as capabilities:
        assert [m.model_name for m in capabilities.supported_models] == [lathe.model_name]


@sdk_method("RestClient.get_training_run")
def test_get_training_run(answer, rest, run_id, lathe):
    """base model, rank, user metadata, last checkpoints"""
    with answer(rest, run_id) as run:
        assert (run.base_model, run.lora_rank) == (lathe.model_name, 4)
        assert run.user_metadata == {"made_by": "sdk"}


@sdk_method("RestClient.get_training_run_by_tinker_path")
def test_get_training_run_by_tinker_path(answer, rest, saved, run_id):
    """the run a checkpoint is of"""
    with answer(rest, saved) as run:
        assert run.training_run_id == run_id and run.last_checkpoint.tinker_path == saved


@sdk_method("RestClient.list_training_runs")
def test_list_training_runs(answer, rest, run_id):
    """the caller's runs, newest first, in pages"""
    with answer(rest, limit=100) as runs:
        assert run_id in [run.training_run_id for run in runs.training_runs]


@sdk_method("RestClient.get_weights_info_by_tinker_path")
def test_get_weights_info_by_tinker_path(answer, rest, saved, lathe):
    """of one's own paths and of published ones"""
    with answer(rest, saved) as info:
        assert (info.base_model, info.is_lora, info.lora_rank) == (lathe.model_name, True, 4)


@sdk_method("RestClient.list_checkpoints")
def test_list_checkpoints(answer, rest, saved, run_id):
    """of one run, with size, expiry and user metadata"""
    with answer(rest, run_id) as listed:
        found = next(c for c in listed.checkpoints if c.tinker_path == saved)
        assert found in listed.checkpoints and found.size_bytes > 0 and not found.public


@sdk_method("RestClient.list_user_checkpoints")
def test_list_user_checkpoints(answer, rest, saved):
    """of all the caller's runs, in pages"""
    with answer(rest, limit=1000) as listed:
        assert saved in [c.tinker_path for c in listed.checkpoints]


def checkpoint_of(rest, path):
    run = path.removeprefix("tinker://").split("/")[0]
    return next((c for c in rest.list_checkpoints(run).result().checkpoints
                 if c.tinker_path == path), None)


@sdk_method("RestClient.delete_checkpoint")
def test_delete_checkpoint(answer, rest, saved, run_id):
    """takes the files away; repeated, 404"""
    with answer(rest, run_id, saved.removeprefix(f"tinker://{run_id}/")) as nothing:
        assert nothing is None and checkpoint_of(rest, saved) is None


@sdk_method("RestClient.delete_checkpoint_from_tinker_path")
def test_delete_checkpoint_from_tinker_path(answer, rest, saved):
    """takes the files away; repeated, 404"""
    with answer(rest, saved) as nothing:
        assert nothing is None and checkpoint_of(rest, saved) is None


@sdk_method("RestClient.publish_checkpoint_from_tinker_path")
def test_publish_checkpoint_from_tinker_path(answer, rest, saved):
    """anyone with a key may then load and sample it"""
    with answer(rest, saved) as nothing:
        assert nothing is None and checkpoint_of(rest, saved).public


@sdk_method("RestClient.unpublish_checkpoint_from_tinker_path")
def test_unpublish_checkpoint_from_tinker_path(answer, rest, saved):
    """for its owner alone again"""
    rest.publish_checkpoint_from_tinker_path(saved).result()
    with answer(rest, saved) as nothing:
        assert nothing is None and not checkpoint_of(rest, saved).public


@sdk_method("RestClient.set_checkpoint_ttl_from_tinker_path")
def test_set_checkpoint_ttl_from_tinker_path(answer, rest, saved):
    """an expiry from now on, or none"""
    with answer(rest, saved, 7200) as nothing:
        left = checkpoint_of(rest, saved).expires_at - datetime.datetime.now(datetime.timezone.utc)
        assert nothing is None and 7000 < left.total_seconds() <= 7200


@sdk_method("RestClient.get_checkpoint_archive_url")
def test_get_checkpoint_archive_url(answer, rest, trained, run_id, fresh_name):
    """an address of the tar that expires"""
    trained.save_weights_for_sampler(fresh_name).result()
    with answer(rest, run_id, f"sampler_weights/{fresh_name}") as archive:
        assert archive.url.startswith("http") and archive.expires


@sdk_method("RestClient.get_checkpoint_archive_url_from_tinker_path")
def test_get_checkpoint_archive_url_from_tinker_path(answer, rest, trained, fresh_name):
    """an address of the tar that expires"""
    path = trained.save_weights_for_sampler(fresh_name).result().path
    with answer(rest, path) as archive:
        assert archive.url.startswith("http") and archive.expires


@sdk_method("RestClient.get_session")
def test_get_session(answer, rest, run_id):
    """its runs, samplers and user metadata"""
    with answer(rest, run_id.split(":")[0]) as session:
        assert run_id in session.training_run_ids


@sdk_method("RestClient.list_sessions")
def test_list_sessions(answer, rest, run_id):
    """the caller's, newest first, in pages"""
    with answer(rest, limit=100) as listed:
        assert run_id.split(":")[0] in listed.sessions


@sdk_method("RestClient.get_sampler")
def test_get_sampler(answer, rest, service, lathe, run_id):
    """base model and path of a sampling session"""
    resolved(service.create_sampling_client(base_model=lathe.model_name))
    sampler_id = rest.get_session(run_id.split(":")[0]).result().sampler_ids[0]
    with answer(rest, sampler_id) as sampler:
        assert (sampler.sampler_id, sampler.base_model) == (sampler_id, lathe.model_name)


@sdk_method("RestClient.whoami")
def test_whoami(answer, rest):
    """needs a JWT; with an API key the SDK refuses"""
    with answer.refused(RuntimeError, rest) as error:
        assert "JWT" in str(error) or "whoami" in str(error)
