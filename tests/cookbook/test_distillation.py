"""A student learns from a teacher: on what the student says, and on given text."""

from .conftest import values

RENDERER = "qwen3_disable_thinking"


def say(n):
    return [{"role": "user", "content": f"Say {n % 10}."},
            {"role": "assistant", "content": f"{n % 10} it is"}]


def test_on_policy_distillation_comes_closer_to_the_teacher(kitchen):
    kitchen.dataset("allenai/tulu-3-sft-mixture", train=[{"messages": say(n)} for n in range(48)])
    student = kitchen.teach("student", [say(n) for n in range(10)], 4, RENDERER)
    teacher = kitchen.teach("teacher", [say(n) for n in range(10)], 25, RENDERER)
    options = {"dataset": "tulu3", "renderer_name": RENDERER, "teacher_model": "Qwen/Qwen3-8B",
               "teacher_checkpoint": teacher["sampler"], "load_checkpoint_path": student["state"],
               "group_size": 8, "groups_per_batch": 8, "learning_rate": 2e-3, "max_tokens": 8,
               "eval_every": 0, "save_every": 4}
    recipe = "tinker_cookbook.recipes.distillation.on_policy_distillation"
    steps = kitchen.run(recipe, "on_policy", **options)
    distance = values(steps, "teacher_kl")
    assert len(distance) == 6 and distance[-1] < 0.5 * distance[0]

    kitchen.interrupted_copy("on_policy", "on_policy_resumed", batch=4)
    resumed = kitchen.run(recipe, "on_policy_resumed", behavior_if_log_dir_exists="resume",
                          **options)
    after = values(resumed, "teacher_kl")
    assert len(after) == 2 and after[0] < 0.7 * distance[0]


def test_off_policy_distillation_learns_the_teacher_s_distribution(kitchen):
    teacher = kitchen.teach("off-teacher", [say(n) for n in range(10)], 25, RENDERER)
    data = kitchen.write_rows(kitchen.folder / "said.jsonl",
                              [{"messages": say(n)} for n in range(48)])
    steps = kitchen.run("off_policy_distillation", "off_policy", data=data,
                        teacher_checkpoint=teacher["sampler"], renderer_name=RENDERER,
                        learning_rate=5e-3)
    losses = values(steps, "train/loss:sum")
    assert len(losses) == 6 and losses[-1] < 0.5 * losses[0]
