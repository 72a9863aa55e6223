"""Supervised recipes: the plain loop, and the trainer with its evaluators and checkpoints."""

import pytest

from .conftest import values


def conversations(count):
    """Short ones of one kind, so that a few steps show."""
    return [{"messages": [{"role": "user", "content": f"Say {n % 10} again."},
                          {"role": "assistant", "content": f"{n % 10} again."}]}
            for n in range(count)]


@pytest.fixture(scope="module")
def no_robots(kitchen):
    kitchen.dataset("HuggingFaceH4/no_robots", train=conversations(96), test=conversations(10))


def test_sl_loop_learns_and_resumes_as_if_never_stopped(kitchen, no_robots):
    options = {"batch_size": 8, "learning_rate": 3e-3, "lora_rank": 8, "save_every": 4}
    steps = kitchen.run("tinker_cookbook.recipes.sl_loop", "sl_loop", **options)
    losses = values(steps, "train_mean_nll")
    assert len(losses) == 12 and losses[-1] < 0.5 * losses[0]

    kitchen.interrupted_copy("sl_loop", "sl_loop_resumed", batch=4)
    resumed = kitchen.run("tinker_cookbook.recipes.sl_loop", "sl_loop_resumed", **options)
    assert values(resumed, "train_mean_nll") == pytest.approx(losses[4:], rel=1e-5)


def test_chat_sl_evaluates_as_it_learns_and_resumes(kitchen, no_robots):
    options = {"batch_size": 8, "learning_rate": 3e-3, "lora_rank": 8, "save_every": 6,
               "rolling_save_every": 2, "eval_every": 4, "renderer_name": "qwen3_disable_thinking"}
    recipe = "tinker_cookbook.recipes.chat_sl.train"
    steps = kitchen.run(recipe, "chat_sl", **options)
    losses, held_out = values(steps, "train_mean_nll"), values(steps, "test/nll")
    assert len(losses) == 12 and losses[-1] < 0.5 * losses[0]
    assert len(held_out) == 3 and held_out[-1] < 0.5 * held_out[0]

    # Checkpoints between the periodic ones are taken back.
    assert len(kitchen.checkpoints("chat_sl")) == 6
    assert kitchen.stored("chat_sl") == ["000006", "final"]

    kitchen.interrupted_copy("chat_sl", "chat_sl_resumed", batch=6)
    resumed = kitchen.run(recipe, "chat_sl_resumed", behavior_if_log_dir_exists="resume", **options)
    # This trainer saves behind the batch it has just submitted, so a resumed run repeats that one.
    again = values(resumed, "train_mean_nll")
    assert values(resumed, "learning_rate") == values(steps, "learning_rate")[6:]
    assert all(after < before for after, before in zip(again, losses[6:], strict=True))
