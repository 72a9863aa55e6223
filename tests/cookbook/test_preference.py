"""Direct preference optimization on made pairs."""

from .conftest import values


def pairs(count):
    return [{"chosen": f"\n\nHuman: Say {n % 10}.\n\nAssistant: {n % 10} yes",
             "rejected": f"\n\nHuman: Say {n % 10}.\n\nAssistant: {n % 10} no"}
            for n in range(count)]


def test_dpo_prefers_the_chosen_and_resumes(kitchen):
    kitchen.dataset("Anthropic/hh-rlhf", train=pairs(92), test=pairs(4))
    options = {"dataset": "hhh", "renderer_name": "qwen3_disable_thinking", "batch_size": 4,
               "learning_rate": 2e-3, "dpo_beta": 0.5}
    recipe = "tinker_cookbook.recipes.preference.dpo.train"
    steps = kitchen.run(recipe, "dpo", **options)
    losses, margins = values(steps, "dpo_loss"), values(steps, "margin")
    # The policy begins as its own reference: no margin, and the loss of a coin toss.
    assert abs(margins[0]) < 1e-3 and abs(losses[0] - 0.6931) < 1e-3
    assert len(steps) == 23 and margins[-1] > 0.5 and losses[-1] < 0.5 * losses[0]
    assert steps[-1]["accuracy"] == 1.0 and steps[0]["test/nll"] > 0

    # Its reference is then the model as resumed.
    kitchen.interrupted_copy("dpo", "dpo_resumed", batch=20)
    resumed = kitchen.run(recipe, "dpo_resumed", behavior_if_log_dir_exists="resume", **options)
    assert values(resumed, "step") == [20, 21, 22] and abs(resumed[0]["margin"]) < 1e-3
