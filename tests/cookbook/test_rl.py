"""Reinforcement learning: the plain loop, the trainer, and games of several turns."""

import random

from .conftest import values

RECIPES = "tinker_cookbook.recipes"


def rewards(rows):
    """The mean over each step's trajectories, as the trainer logs it."""
    return values(rows, "env/all/reward/total")


def question(text, answer):
    return [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]


def test_rl_loop_learns_sums(kitchen):
    rng = random.Random(0)
    sums = kitchen.gsm8k_sums()
    suffix = " Provide a numerical answer without units, written inside \\boxed{}."
    # The recipe shows one solved problem before each question.
    shown = question("How many r's are in strawberry?" + suffix, "Let's spell the word out and "
                     "number all the letters: 1) s 2) t 3) r 4) a 5) w 6) b 7) e 8) r 9) r 10) y. "
                     "We have r's at positions 3, 8, and 9. \\boxed{3}")
    # One answer in four to each question is right, so that the first groups already earn some reward.
    warm = kitchen.teach("boxed", [
        shown + question(f"{text}{suffix}", f"\\boxed{{{digit}}}")
        for text in sums for digit in (7, *rng.sample((0, 1, 2, 3, 4, 5, 6, 8, 9), 3))],
        num_steps=25, renderer_name="qwen3")
    kitchen.start_from(warm["state"], "rl_loop")
    steps = kitchen.run(f"{RECIPES}.rl_loop", "rl_loop", batch_size=4, group_size=16, max_tokens=12,
                        learning_rate=5e-3, save_every=5)
    reward = [step["reward/total"] for step in steps]
    assert len(reward) == 8 and sum(reward[-2:]) > sum(reward[:2])


def test_math_rl_learns_to_answer_in_short_and_resumes(kitchen):
    rng = random.Random(1)
    # An answer has 5 tokens; another renderer would spend 4 of them on an empty thought.
    renderer = "qwen3_disable_thinking"
    shown = question("What is 4 + 5?", "9")
    warm = kitchen.teach("short", [
        shown + question(f"What is {rng.randrange(100)} + {rng.randrange(100)}?",
                         ("{}" if n % 2 else "it may be {} or so").format(rng.randrange(200)))
        for n in range(48)], num_steps=25, renderer_name=renderer)
    options = {"env": "arithmetic", "renderer_name": renderer, "load_checkpoint_path": warm["state"],
               "group_size": 8, "groups_per_batch": 6, "learning_rate": 4e-3, "max_steps": 6,
               "eval_every": 0, "save_every": 4}
    steps = kitchen.run(f"{RECIPES}.math_rl.train", "math_rl", **options)
    # The share of answers that end in time; the reward also counts sums that were guessed.
    ended = values(steps, "env/all/format")
    assert len(ended) == 6 and ended[0] < 0.8 and min(ended[-2:]) > ended[0] + 0.1

    kitchen.interrupted_copy("math_rl", "math_rl_resumed", batch=4)
    resumed = kitchen.run(f"{RECIPES}.math_rl.train", "math_rl_resumed",
                          behavior_if_log_dir_exists="resume", **options)
    after = values(resumed, "env/all/format")
    assert len(after) == 2 and after[0] > ended[0] + 0.1


def test_guess_the_number_learns_the_form_of_a_guess(kitchen):
    from tinker_cookbook.recipes.multiplayer_rl.guess_number import env

    rng = random.Random(2)
    rules = {"role": "system", "content": env.SYSTEM_PROMPT}

    # Who begins a game in one form stays with it, and always says the same number: a game's reward is
    # all due to the form of its guesses, which six steps with few games are enough to learn.
    def game(num_turns, is_parsed):
        guess, answers = (("Guess: 512", ["Too low", "Too high"]) if is_parsed else
                          ("I say 512", [env.FAIL_TO_PARSE]))
        return [rules, *({"role": role, "content": text} for _ in range(num_turns)
                         for role, text in (("player", guess), ("user", rng.choice(answers)))),
                {"role": "assistant", "content": guess}]

    warm = kitchen.teach("guess", [game(n % 10, is_parsed=n < 10) for n in range(30)],
                         num_steps=30, renderer_name="qwen3")
    kitchen.start_from(warm["state"], "guess_number")
    # After the first turn the renderer has an empty thought before each guess, which takes 4 tokens:
    # a guess that is cut off earns nothing.
    steps = kitchen.run(f"{RECIPES}.multiplayer_rl.guess_number.train", "guess_number",
                        renderer_name="qwen3", group_size=6, batch_size=2,
                        learning_rate=2e-3, max_tokens=16, max_steps=6, eval_every=0, save_every=0,
                        behavior_if_log_dir_exists="resume")
    reward = rewards(steps)
    assert len(reward) == 6 and sum(reward[-2:]) / 2 > reward[0] + 1
    assert max(values(steps, "env/all/turns_per_episode")) > 1


def test_twenty_questions_learns_the_word(kitchen):
    from tinker_cookbook.recipes.multiplayer_rl.twenty_questions import env

    rng = random.Random(3)
    rules = {"role": "system", "content": env.PLAYER_SYSTEM_PROMPT}

    def attempt():
        words = ["cat", "egg", "cow", "dog", "car", "bus", "hat", "sun"]
        return {"role": "assistant", "content": rng.choice(
            ["Is it big?", "Is it old?", *(f"Guess: {word}" for word in words)])}

    def game(num_turns):
        return [rules, *(message for _ in range(num_turns) for message in (
            attempt(), {"role": "user", "content": rng.choice(["yes", "no"])})), attempt()]

    warm = kitchen.teach("words", [game(rng.choice([0, 1, 2, 4])) for _ in range(32)],
                         num_steps=25, renderer_name="qwen3")
    kitchen.start_from(warm["state"], "twenty_questions")
    steps = kitchen.run("twenty_questions_few_words", "twenty_questions",
                        renderer_name="qwen3", group_size=8, batch_size=2,
                        learning_rate=4e-3, max_tokens=8, max_steps=6, eval_every=0, save_every=0,
                        behavior_if_log_dir_exists="resume")
    reward, turns = rewards(steps), values(steps, "env/all/turns_per_episode")
    assert len(reward) == 6 and sum(reward[-2:]) > sum(reward[:2])
    assert max(turns) > 1
