"""`lathe ranks --drain-timeout`: a group that is stopped gives its models to others first."""

import signal

import pytest
import tinker
from support.group_service import GroupService
from support.lathe_server import tiny_model
from support.sdk import resolved
from tinker import types

ADAM = types.AdamParams(learning_rate=1e-3)
TOKENS = [5, 6, 7, 8, 9, 10, 11]


class DrainedGroups(GroupService):
    """Each group is one rank under a `lathe ranks` of its own, which gets a minute to drain."""

    def _start_rank(self, rank):
        name = self.names[rank]
        folder, served = self.groups[name]
        self.ranks[rank] = self._start(
            ["lathe", "ranks", "--ranks", "0", "--group", name, "--threads", "1",
             "--drain-timeout", "60s", "--data-dir", self.data_dir, "--", "--model",
             f"{served}={folder}", "--device", "cpu", "--memory-fraction", "0.2"], f"rank{rank}")

    def stop(self, name):
        """SIGTERM; returns the exit code. The group does not come back by itself."""
        rank = self.names.index(name)
        self.held.add(rank)
        self.ranks[rank].send_signal(signal.SIGTERM)
        return self.ranks[rank].wait(90)


@pytest.fixture
def service():
    groups = {name: (tiny_model(), "tiny") for name in ("a", "b")}
    with DrainedGroups(groups, engine_options=("--group-lost-timeout", "0s")) as running:
        yield running


def train(model, steps):
    losses = []
    for _ in range(steps):
        datum = types.Datum(model_input=types.ModelInput.from_ints(TOKENS[:-1]),
                            loss_fn_inputs={"target_tokens": TOKENS[1:],
                                            "weights": [1.0] * (len(TOKENS) - 1)})
        forward = model.forward_backward([datum], "cross_entropy")
        model.optim_step(ADAM).result()
        losses.append(forward.result().metrics["loss:sum"])
    return losses


def test_a_stopped_group_gives_its_models_to_another_and_comes_back(service):
    api = tinker.ServiceClient(base_url=service.url, api_key=service.api_key)
    models = [resolved(api.create_lora_training_client("tiny", rank=2, seed=1)) for _ in range(4)]
    before = [train(model, 2) for model in models]
    assert set(service.models()) == {"a", "b"} and service.models()["a"] > 0
    assert service.stop("a") == 0
    assert "the group holds nothing" in service.log("rank0")
    # A lost group alone would keep its models: group_lost_timeout is never.
    assert {service.home_of(model.model_id) for model in models} == {"b"}
    assert service.describe()["a"]["drain"] == ""
    # All models saw the same tokens, so they agree wherever they have been.
    after = [train(model, 1) for model in models]
    assert all(losses == after[0] for losses in after)
    assert all(losses == before[0] for losses in before)
    service.bring_back("a")
    service.wait_formed()
    assert service.describe()["a"]["drain"] == ""
    # No group could take over from the last one: it ends at once, and its models wait for it.
    assert service.stop("a") == 0
    assert service.stop("b") == 0
    assert "not possible: group is 'b': no other group" in service.log("rank1")
    service.bring_back("b")
    service.wait(lambda: service.is_ready("b"), "group b")
    assert all(train(model, 1) for model in models)
