"""The reward of a recipe, which nobody has changed, becomes a curve of its run by one command beside it."""

import signal
import subprocess

import httpx
from support.lathe_server import BIN

RL_LOOP = "tinker_cookbook.recipes.rl_loop"


def curve(server, run, name):
    answer = httpx.get(f"{server.url}/api/v1/training_runs/{run}/metrics",
                       params={"names": name}, headers={"X-API-Key": server.api_key}).json()
    return {one["name"]: one for one in answer["series"]}[name]


def test_rl_loop_shows_its_reward_curve(kitchen):
    kitchen.gsm8k_sums()
    log = kitchen.log("curve")
    # It is started before the program: it waits for the log, and takes the run that is then the newest.
    follow = subprocess.Popen([str(BIN / "lathe"), "metrics", "follow", str(log), "--period", "100ms"],
                              env=kitchen.environment, stdout=subprocess.PIPE, text=True)
    try:
        steps = kitchen.run(RL_LOOP, "curve", batch_size=4, group_size=4, max_tokens=8, max_steps=4, save_every=2)
        assert len(steps) == 4
        run = kitchen.checkpoints("curve")[0]["state_path"].removeprefix("tinker://").split("/")[0]
        said = follow.stdout.readline()
        assert said == f"follows into the newest run, {run}\n"
    finally:
        follow.send_signal(signal.SIGINT)
        said = follow.communicate(timeout=60)[0]
    assert follow.returncode == 0 and "sent " in said
    # A second start sends the rest of the log, and nothing twice.
    done = subprocess.run([str(BIN / "lathe"), "metrics", "follow", str(log), "--once"],
                          env=kitchen.environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    shown = curve(kitchen.server, run, "reward/total")
    assert shown["steps"] == [step["step"] for step in steps]
    assert shown["mean"] == [step["reward/total"] for step in steps]
