"""Metrics of runs: those of results, those of users, over restarts, and what is refused."""

import json
import os
import re
import subprocess
import time

import pytest
import tinker
from support.lathe_server import BIN, LatheServer, tiny_model
from support.raw_api import RawApi, RawModel
from support.sdk import resolved
from tinker import types

ADAM = types.AdamParams(learning_rate=1e-2)
MANY_POINTS = 4096  # from so many on, the points of a run become chunks at once


@pytest.fixture(scope="module")
def lathe():
    with LatheServer(tiny_model()) as server:
        yield server


@pytest.fixture(scope="module")
def api(lathe):
    return RawApi(lathe)


@pytest.fixture(scope="module")
def model(api):
    return RawModel(api)


def datum(tokens):
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]),
                       loss_fn_inputs={"target_tokens": tokens[1:],
                                       "weights": [1.0] * (len(tokens) - 1)})


def append(api, run, points):
    return api.post(f"training_runs/{run}/metrics", {"points": points})


def point(name, value, step, **more):
    return {"name": name, "value": value, "step": step, **more}


def appended(api, run, points):
    answer = append(api, run, points)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"num_points": len(points)}


def query(api, run, **params):
    answer = api.get(f"training_runs/{run}/metrics", params=params)
    assert answer.status_code == 200, answer.text
    assert answer.json()["run_id"] == run
    return {one["name"]: one for one in answer.json()["series"]}


def refused(answer, status, *words):
    assert answer.status_code == status, answer.text
    for word in words:
        assert word in answer.text


def read_when_up(api, run):
    """The gateway answers 503 until the next engine leads."""
    while (answer := api.get(f"training_runs/{run}/metrics")).status_code != 200:
        assert answer.status_code == 503, answer.text
        time.sleep(0.05)
    return {one["name"]: one for one in answer.json()["series"]}


def lathe_metrics(lathe, *words, key=None):
    return subprocess.run([str(BIN / "lathe"), "metrics", *words], capture_output=True, text=True,
                          timeout=60, env={**os.environ, "TINKER_BASE_URL": lathe.url,
                                           "TINKER_API_KEY": key or lathe.api_key})


def test_a_training_loop_has_the_losses_that_the_sdk_returned():
    with LatheServer(tiny_model()) as server:
        api = RawApi(server)
        service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
        client = resolved(service.create_lora_training_client(server.model_name, rank=4, seed=7))
        run = client.model_id
        losses, norms = [], []

        def train(num_steps):
            for _ in range(num_steps):
                batch = [datum([30, 31, 32, 33, 34]), datum([40, 41, 42])]
                future = client.forward_backward(batch, "cross_entropy")
                step = client.optim_step(ADAM)
                losses.append(future.result().metrics)
                norms.append(step.result().metrics)

        def check():
            series = read_when_up(api, run)
            for name in losses[0]:
                assert series[name]["steps"] == list(range(len(losses)))
                assert series[name]["mean"] == [one[name] for one in losses]
                assert series[name]["last_value"] == losses[-1][name]
                assert series[name]["count"] == len(losses)
            for name in norms[0]:
                assert series[name]["mean"] == [one[name] for one in norms]
            assert series["forward_backward/datums"]["mean"] == [2] * len(losses)
            assert series["forward_backward/execute_seconds"]["unit"] == "s"
            assert min(series["forward_backward/execute_seconds"]["min"]) > 0
            assert series["reward/mean"]["mean"] == [0.5, 0.25]
            assert series["reward/mean"]["steps"] == [0, 1]
            assert series["reward/mean"]["counts"] == [1, 1]

        train(3)
        appended(api, run, [point("reward/mean", 0.5, 0), point("reward/mean", 0.25, 1)])
        check()
        # Right after the commit, and with chunks of another run being written.
        other = RawModel(api).model_id
        for begin in range(0, MANY_POINTS, 1000):
            appended(api, other, [point("long", i, i) for i in range(begin, begin + 1000)])
        server.wait_restarted("engine", server.kill("engine"))
        check()
        long = read_when_up(api, other)["long"]
        assert long["count"] == 5000 and sum(long["counts"]) == 5000
        assert (min(long["min"]), max(long["max"])) == (0, 4999)
        train(2)
        check()
        # A repetition of a call that was answered before the kill.
        appended(api, run, [point("reward/mean", 0.5, 0), point("reward/mean", 0.25, 1)])
        check()


def test_samples_and_saves_are_counted(lathe, api):
    service = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key)
    client = resolved(service.create_lora_training_client(lathe.model_name, rank=4))
    sampler = resolved(client.save_weights_and_get_sampling_client())
    sampler.sample(types.ModelInput.from_ints([30, 31]), 3,
                   types.SamplingParams(max_tokens=4, stop=[], seed=1)).result()
    series = query(api, client.model_id, points=0)
    assert series["save_weights_for_sampler/count"]["last_value"] == 1
    assert series["sample/sequences"]["last_value"] == 3
    assert series["sample/tokens"]["last_value"] == 12


def test_a_query_selects_names_steps_and_resolution(api, model):
    run = model.model_id
    appended(api, run, [point(f"q/{name}", i, i) for i in range(400) for name in "ab"])
    appended(api, run, [point("q/c", 7, 3, time="2026-01-02T03:04:05.25Z")])
    assert set(query(api, run, names="q/*")) == {"q/a", "q/b", "q/c"}
    assert set(query(api, run, names="q/a,*/c")) == {"q/a", "q/c"}
    few = query(api, run, names="q/a", points=10)["q/a"]
    assert len(few["steps"]) == 10 and sum(few["counts"]) == 400 and few["count"] == 400
    assert few["min"][0] == 0 and few["max"][-1] == 399
    part = query(api, run, names="q/a", from_step=10, to_step=12)["q/a"]
    assert part["steps"] == [10, 11, 12] and part["mean"] == [10, 11, 12]
    head = query(api, run, names="q/c", points=0)["q/c"]
    assert head == {"name": "q/c", "unit": "", "count": 1, "last_step": 3, "last_value": 7,
                    "last_time": "2026-01-02T03:04:05.25Z"}
    exact = query(api, run, names="q/c")["q/c"]
    assert exact["times_ms"] == [1767323045250] and exact["level"] == 0
    path = f"training_runs/{run}/metrics"
    refused(api.get(path, params={"points": 2001}), 400, "2001", "2000")
    refused(api.get(path, params={"points": "many"}), 400, "points")
    refused(api.get(path, params={"names": "a b"}), 400, "names")
    refused(api.get(path, params={"names": ",".join(["a"] * 65)}), 400, "65", "64")
    refused(api.get(path, params={"from_step": 2, "to_step": 1}), 400, "from_step")


def test_the_newest_point_may_be_replaced_an_older_one_not(api, model):
    run = model.model_id
    appended(api, run, [point("back", 1, 5), point("back", 2, 6)])
    appended(api, run, [point("back", 3, 6)])
    refused(append(api, run, [point("back", 9, 5)]), 400, "points[0].step", "back", "5")
    appended(api, run, [point("back", 1, 5), point("back", 3, 6)])
    assert query(api, run, names="back")["back"]["mean"] == [1, 3]


@pytest.mark.parametrize("bad, field", [
    (point("a", None, 1), "value"),
    (point("a", "1", 1), "value"),
    (point("a", 1, -1), "step"),
    (point("a", 1, 2 ** 63), "step"),
    (point("a", 1, 1.5), "step"),
    (point("<script>alert(1)</script>", 1, 1), "name"),
    (point("a\n", 1, 1), "name"),
    (point("", 1, 1), "name"),
    (point("x" * 65, 1, 1), "name"),
    (point("a", 1, 1, time="2999-01-01T00:00:00Z"), "time"),
    (point("a", 1, 1, time="soon"), "time"),
    (point("loss:sum", 1, 1), "name"),
])
def test_bad_points_are_refused_and_named(api, model, bad, field):
    model.accumulate()  # loss:sum is a metric of the server
    answer = append(api, model.model_id, [point("fine", 1, 1), bad])
    refused(answer, 400, field)
    assert re.search(r"points.1.*" + field, answer.text.replace("\\/", "/")), answer.text
    assert answer.headers["content-type"].startswith("application/json")
    assert "fine" not in query(api, model.model_id, points=0)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused(api, model, number):
    body = '{"points": [{"name": "a", "step": 1, "value": ' + number + '}]}'
    answer = api.request("POST", f"training_runs/{model.model_id}/metrics", content=body,
                         headers={"Content-Type": "application/json"})
    refused(answer, 400)


def test_a_program_names_400_metrics_of_a_run_at_most_and_results_have_room(api):
    model = RawModel(api)
    run = model.model_id
    appended(api, run, [point(f"n{i}", i, 1) for i in range(400)])
    for begin in range(400, 10_000, 1000):
        answer = append(api, run, [point(f"n{i}", i, 1) for i in range(begin, begin + 1000)])
        refused(answer, 400, "points[0].name", "401", "400")
    refused(append(api, run, [point("a", 1, 1)] * 1001), 400, "points", "1000")
    refused(append(api, run, []), 400, "points")
    assert len(query(api, run, points=0)) == 400
    curves = api.get(f"training_runs/{run}/metrics").json()
    assert len(curves["series"]) == 64 and curves["more_names"] is True


def test_tenants_see_nothing_of_each_other(lathe, api, model):
    other = RawApi(lathe, lathe.create_key("stranger"))
    run = model.model_id
    appended(api, run, [point("mine", 1, 1)])
    absent = other.get("training_runs/absent/metrics")
    for answer in (other.get(f"training_runs/{run}/metrics"), append(other, run, [point("x", 1, 1)])):
        refused(answer, 404)
        assert answer.text.replace(run, "absent") == absent.text
    own = RawModel(other).model_id
    appended(other, own, [point("theirs", 1, 1)])
    assert "theirs" not in query(api, run, points=0)
    assert "mine" not in query(other, own, points=0)


def test_samples_of_another_tenant_leave_no_trace_in_the_run(lathe, api):
    service = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key)
    client = resolved(service.create_lora_training_client(lathe.model_name, rank=4))
    path = resolved(client.save_weights_for_sampler("a")).path
    checkpoint = f"training_runs/{client.model_id}/checkpoints/sampler_weights/a"
    assert api.post(f"{checkpoint}/publish").status_code < 300
    for key, counted in ((lathe.create_key("visitor"), []), (lathe.api_key, [2])):
        caller = tinker.ServiceClient(base_url=lathe.url, api_key=key)
        resolved(resolved(caller.create_sampling_client(model_path=path)).sample(
            types.ModelInput.from_ints([30, 31]), 2,
            types.SamplingParams(max_tokens=4, stop=[], seed=1)))
        counts = query(api, client.model_id, names="sample/sequences", points=0)
        assert [one["last_value"] for one in counts.values()] == counted


def test_follow_appends_a_log_once_and_show_prints_it(lathe, api, tmp_path):
    run = RawModel(api).model_id
    log = tmp_path / "metrics.jsonl"
    rows = [{"step": i, "env/all/reward": i / 2, "text": "x"} for i in range(3)]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    follow = ["follow", str(tmp_path), "--run", run, "--once"]
    assert "sent 3 points" in lathe_metrics(lathe, *follow).stdout
    rows += [{"step": 3, "env/all/reward": 9, "a name": 1}, {"time/total": 5}]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 4, "env/all/rew')
    again = lathe_metrics(lathe, *follow)
    assert again.returncode == 0, again.stderr
    series = query(api, run, names="env/*,a_name")
    assert series["env/all/reward"]["mean"] == [0, 0.5, 1, 9]
    assert series["a_name"]["last_step"] == 3
    # A later start goes on with the run, whatever was begun since.
    RawModel(api)
    newer = query(api, run, points=0)
    assert lathe_metrics(lathe, "follow", str(tmp_path), "--once").stdout.startswith("sent ")
    assert {name: one["last_value"] for name, one in query(api, run, points=0).items()} == {
        name: one["last_value"] for name, one in newer.items()}
    other = tmp_path / "other.jsonl"
    other.write_text(log.read_text())
    guessed = lathe_metrics(lathe, "follow", str(other))
    assert guessed.returncode == 2 and "--run" in guessed.stderr
    shown = lathe_metrics(lathe, "show", run, "--names", "env/*")
    assert re.search(r"env/all/reward +3 +9 ", shown.stdout), shown.stdout
    assert lathe_metrics(lathe, "show", "a b").returncode == 2
    missing = lathe_metrics(lathe, "show", "absent")
    assert missing.returncode != 0 and "absent" in missing.stderr

