"""The evaluators: a graded sample, log-likelihood by both clients, a benchmark."""

import json

import pytest

RENDERER = "qwen3_disable_thinking"


def test_evaluators_tell_a_taught_model_from_the_base_model(kitchen):
    kitchen.gsm8k_sums()
    questions = kitchen.write_rows(kitchen.folder / "questions.jsonl", [
        {"input": f"Name number {n}.", "output": f"It is {n}."} for n in range(4)])
    benchmark = kitchen.folder / "openai" / "gsm8k" / "test.jsonl"
    taught = kitchen.teach("evaluated", [
        [{"role": "user", "content": row["input"]}, {"role": "assistant", "content": row["output"]}]
        for row in map(json.loads, questions.read_text().splitlines())] + [
        [{"role": "user", "content": row["question"]},
         {"role": "assistant", "content": "\\boxed{7}"}]
        for row in map(json.loads, benchmark.read_text().splitlines())], 40, RENDERER)

    options = {"renderer_name": RENDERER, "questions": questions}
    base = json.loads(kitchen.output("evaluate", **options).splitlines()[-1])
    after = json.loads(kitchen.output("evaluate", sampler=taught["sampler"],
                                      state=taught["state"], **options).splitlines()[-1])
    assert base["accuracy"] == 0 and after["accuracy"] > 0.5
    assert after["sampler/nll"] < 0.2 * base["sampler/nll"]
    for metrics in (base, after):
        assert metrics["trainer/nll"] == pytest.approx(metrics["sampler/nll"], rel=1e-3)
        assert metrics["eval/gsm8k/num_examples"] == 8 and metrics["eval/gsm8k/num_errors"] == 0
    assert after["eval/gsm8k/score"] > base["eval/gsm8k/score"]
