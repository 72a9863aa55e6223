"""RestClient, method by method."""

import datetime

import httpx
import pytest
import tinker
from support.sdk import VERSION, resolved
from support.sdk_matrix import sdk_method
from tinker import types

from .conftest import new_model, this_hour, used


@sdk_method("RestClient.get_server_capabilities")
def test_get_server_capabilities(answer, rest, lathe):
    """lists the served base models with their context lengths"""
    with answer(rest) as capabilities:
        assert [m.model_name for m in capabilities.supported_models] == [lathe.model_name]


@sdk_method("RestClient.get_training_run")
def test_get_training_run(answer, rest, run_id, lathe):
    """returns the base model, LoRA rank, user metadata and last checkpoints of a run"""
    with answer(rest, run_id) as run:
        assert (run.base_model, run.lora_rank) == (lathe.model_name, 4)
        assert run.user_metadata == {"made_by": "sdk"}


@sdk_method("RestClient.get_training_run_by_tinker_path")
def test_get_training_run_by_tinker_path(answer, rest, saved, run_id):
    """returns the run that a checkpoint belongs to"""
    with answer(rest, saved) as run:
        assert run.training_run_id == run_id and run.last_checkpoint.tinker_path == saved


@sdk_method("RestClient.list_training_runs")
def test_list_training_runs(answer, rest, run_id):
    """lists the tenant's runs, newest first, in pages"""
    with answer(rest, limit=100) as runs:
        assert run_id in [run.training_run_id for run in runs.training_runs]


@sdk_method("RestClient.get_weights_info_by_tinker_path")
def test_get_weights_info_by_tinker_path(answer, rest, saved, lathe):
    """describes a checkpoint of the tenant, or a published one"""
    with answer(rest, saved) as info:
        assert (info.base_model, info.is_lora, info.lora_rank) == (lathe.model_name, True, 4)


@sdk_method("RestClient.list_checkpoints")
def test_list_checkpoints(answer, rest, saved, run_id):
    """lists the checkpoints of one run with size, expiry and user metadata"""
    with answer(rest, run_id) as listed:
        found = next(c for c in listed.checkpoints if c.tinker_path == saved)
        assert found in listed.checkpoints and found.size_bytes > 0 and not found.public


@sdk_method("RestClient.list_user_checkpoints")
def test_list_user_checkpoints(answer, rest, saved):
    """lists the checkpoints of all runs of the tenant, in pages"""
    with answer(rest, limit=1000) as listed:
        assert saved in [c.tinker_path for c in listed.checkpoints]


def checkpoint_of(rest, path):
    run = path.removeprefix("tinker://").split("/")[0]
    return next((c for c in rest.list_checkpoints(run).result().checkpoints
                 if c.tinker_path == path), None)


@sdk_method("RestClient.delete_checkpoint")
def test_delete_checkpoint(answer, rest, saved, run_id):
    """deletes a checkpoint with its files; a second call gets 404"""
    with answer(rest, run_id, saved.removeprefix(f"tinker://{run_id}/")) as nothing:
        assert nothing is None and checkpoint_of(rest, saved) is None


@sdk_method("RestClient.delete_checkpoint_from_tinker_path")
def test_delete_checkpoint_from_tinker_path(answer, rest, saved):
    """deletes a checkpoint with its files; a second call gets 404"""
    with answer(rest, saved) as nothing:
        assert nothing is None and checkpoint_of(rest, saved) is None


@sdk_method("RestClient.publish_checkpoint_from_tinker_path")
def test_publish_checkpoint_from_tinker_path(answer, rest, saved):
    """lets anyone with a key load the checkpoint and sample from it"""
    with answer(rest, saved) as nothing:
        assert nothing is None and checkpoint_of(rest, saved).public


@sdk_method("RestClient.unpublish_checkpoint_from_tinker_path")
def test_unpublish_checkpoint_from_tinker_path(answer, rest, saved):
    """restricts the checkpoint to its owner again"""
    rest.publish_checkpoint_from_tinker_path(saved).result()
    with answer(rest, saved) as nothing:
        assert nothing is None and not checkpoint_of(rest, saved).public


@sdk_method("RestClient.set_checkpoint_ttl_from_tinker_path")
def test_set_checkpoint_ttl_from_tinker_path(answer, rest, saved):
    """sets the time until the checkpoint expires, or removes its expiry"""
    with answer(rest, saved, 7200) as nothing:
        left = checkpoint_of(rest, saved).expires_at - datetime.datetime.now(datetime.timezone.utc)
        assert nothing is None and 7000 < left.total_seconds() <= 7200


@sdk_method("RestClient.get_checkpoint_archive_url")
def test_get_checkpoint_archive_url(answer, rest, trained, run_id, fresh_name):
    """returns a link to a tar file of the checkpoint; the link expires"""
    trained.save_weights_for_sampler(fresh_name).result()
    with answer(rest, run_id, f"sampler_weights/{fresh_name}") as archive:
        assert archive.url.startswith("http") and archive.expires


@sdk_method("RestClient.get_checkpoint_archive_url_from_tinker_path")
def test_get_checkpoint_archive_url_from_tinker_path(answer, rest, trained, fresh_name):
    """returns a link to a tar file of the checkpoint; the link expires"""
    path = trained.save_weights_for_sampler(fresh_name).result().path
    with answer(rest, path) as archive:
        assert archive.url.startswith("http") and archive.expires


@sdk_method("RestClient.get_session")
def test_get_session(answer, rest, run_id):
    """returns the runs, samplers and user metadata of a session"""
    with answer(rest, run_id.split(":")[0]) as session:
        assert run_id in session.training_run_ids


@sdk_method("RestClient.export_session_trace")
def test_export_session_trace(answer, rest, run_id):
    """returns a link to a Perfetto file that shows when each request waited, ran and was
    delivered"""
    with answer(rest, run_id.split(":")[0]) as url:
        assert "/traces/" in url
        events = httpx.get(url).json()["traceEvents"]
        assert f"model {run_id}" in [e["args"]["name"] for e in events if e["ph"] == "M"]
        names = [event["name"] for event in events if event["ph"] == "b"]
        assert names.index("forward_backward") < names.index("optim_step")


@sdk_method("RestClient.list_sessions")
def test_list_sessions(answer, rest, run_id):
    """lists the tenant's sessions, newest first, in pages"""
    with answer(rest, limit=100) as listed:
        assert run_id.split(":")[0] in listed.sessions


@sdk_method("RestClient.assign_session_project")
def test_assign_session_project(answer, rest, service, lathe, fresh_name):
    """moves a session with its runs and usage to a project; a project belongs to the tenant and
    needs no creation"""
    run_id = new_model(service, lathe, steps=0).get_info().model_id
    session = run_id.split(":")[0]
    with answer(rest, session, fresh_name) as nothing:
        listed = httpx.get(f"{lathe.url}/api/v1/training_runs", params={"project_id": fresh_name},
                           headers={"X-API-Key": lathe.api_key}).json()
        assert nothing is None
        assert run_id in [run["training_run_id"] for run in listed["training_runs"]]


@sdk_method("RestClient.search_sessions")
@pytest.mark.filterwarnings("ignore")
def test_search_sessions(answer, billed):
    """finds the tenant's sessions by id, name, project, metadata and status; lists them newest
    first, in pages"""
    service, session = billed
    request = types.SessionSearchRequest(
        project_ids=["first"], user_metadata={"team": "blue"}, limit=1,
        statuses=[{"type": "active"}, {"type": "client_finished", "reasons": ["errored"]}])
    rest = service.create_rest_client()
    with answer(rest, request) as found:
        assert [one.session_id for one in found.sessions] == [session]
        one = found.sessions[0]
        assert (one.owner, one.project_id, one.checkpoints_count) == ("billed", "first", 1)
        assert one.status.type == "active" and one.checkpoint_storage_bytes > 0
        assert found.next_cursor is None


@sdk_method("RestClient.get_billing_usage")
def test_get_billing_usage(answer, billed, lathe):
    """returns tokens and checkpoints by hour, session and base model; usage is visible together
    with its result; there are no prices"""
    service, session = billed
    with answer(service.create_rest_client(), *this_hour()) as usage:
        assert used(usage.data, session) == {"training": 12, "sampling_prefill": 3,
                                             "sampling_sample": 5, "checkpoint": 1}
        assert usage.sessions[session].user_metadata == {"team": "blue"}
        event = next(e for e in usage.data if e.session_id == session)
        assert (event.base_model, event.project_id) == (lathe.model_name, "first")


@sdk_method("RestClient.get_current_checkpoint_storage_usage")
def test_get_current_checkpoint_storage_usage(answer, billed):
    """returns the number and size of the stored checkpoints by project; there are no prices"""
    service, _ = billed
    with answer(service.create_rest_client(), project_id="first") as usage:
        assert [one.checkpoint_count for one in usage.data] == [1]
        assert usage.data[0].size_bytes == round(usage.data[0].size_gigabytes * 1e9) > 0


@sdk_method("RestClient.get_sampler")
def test_get_sampler(answer, rest, service, lathe, run_id):
    """returns the base model and path of a sampling session"""
    resolved(service.create_sampling_client(base_model=lathe.model_name))
    sampler_id = rest.get_session(run_id.split(":")[0]).result().sampler_ids[0]
    with answer(rest, sampler_id) as sampler:
        assert (sampler.sampler_id, sampler.base_model) == (sampler_id, lathe.model_name)


@sdk_method("RestClient.whoami")
def test_whoami(answer, jwt_lathe):
    """returns key and tenant if tokens are on (`gateway.jwt_auth`); otherwise the SDK refuses the
    call"""
    key = jwt_lathe.create_key("who")
    rest = tinker.ServiceClient(base_url=jwt_lathe.url, api_key=key).create_rest_client()
    with answer(rest) as me:
        assert me.user_urn == key.removeprefix("tml-").split("_")[0]
        assert getattr(me, "org_urn", "tml:organization:who") == "tml:organization:who"


@sdk_method("RestClient.get_audit_log")
def test_get_audit_log(answer, rest, saved):
    """lists the changes to the tenant's keys and checkpoints on one day; needs the scope `admin`"""
    rest.delete_checkpoint_from_tinker_path(saved).result()
    if answer.is_async and VERSION < (0, 38):
        # These SDKs can await it on a loop of their own only.
        with answer.refused(AssertionError, rest) as error:
            assert "event loop" in str(error)
        return
    with answer(rest, "checkpoints") as log:
        assert ("checkpoint_delete", saved) in [(e.event, e.tinker_path) for e in log.entries]


@sdk_method("RestClient.get_external_weights_urls")
def test_get_external_weights_urls(answer, rest, trained, fresh_name):
    """returns one signed link per file"""
    path = trained.save_weights_external(fresh_name).result().path
    with answer(rest, path) as links:
        assert sorted(links.urls) == ["adapter_config.json", "adapter_model.safetensors"]
        assert httpx.get(links.urls["adapter_config.json"]).json()["r"] == 4


@sdk_method("RestClient.copy_weights")
def test_copy_weights(answer, rest, saved):
    """copies a checkpoint into a new run; the copy shares the files and outlives its source"""
    with answer(rest, saved, destination_project_id="copies") as path:
        assert path.startswith("tinker://") and path != saved
        rest.delete_checkpoint_from_tinker_path(saved).result()
        assert rest.get_weights_info_by_tinker_path(path).result().lora_rank == 4
