"""Runs the cookbook's evaluators on one sampler and one training checkpoint; prints their metrics."""

import asyncio
import json

import chz
import tinker
from tinker_cookbook import renderers
from tinker_cookbook.eval.benchmark_evaluator import BenchmarkEvaluator
from tinker_cookbook.eval.custom_evaluators import CustomEvaluator
from tinker_cookbook.supervised.data import conversation_to_datum
from tinker_cookbook.supervised.nll_evaluator import NLLEvaluator, SamplerNLLEvaluator
from tinker_cookbook.tokenizer_utils import get_tokenizer


@chz.chz
class Options:
    model_name: str
    renderer_name: str
    questions: str
    sampler: str | None = None
    state: str | None = None


async def evaluate(options):
    tokenizer = get_tokenizer(options.model_name)
    renderer = renderers.get_renderer(options.renderer_name, tokenizer)
    with open(options.questions) as file:
        questions = [json.loads(line) for line in file]
    data = [conversation_to_datum([{"role": "user", "content": question["input"]},
                                   {"role": "assistant", "content": question["output"]}],
                                  renderer, 512, renderers.TrainOnWhat.LAST_ASSISTANT_MESSAGE)
            for question in questions]
    with tinker.ServiceClient() as service:
        sampler = service.create_sampling_client(base_model=options.model_name,
                                                 model_path=options.sampler).result()
        client = (service.create_training_client_from_state(options.state) if options.state else
                  service.create_lora_training_client(options.model_name, rank=8)).result()
        return {
            **await CustomEvaluator(questions, lambda said, wanted: wanted in said,
                                    options.model_name, options.renderer_name)(sampler),
            **await SamplerNLLEvaluator(data, name="sampler", tokenizer=tokenizer)(sampler),
            **await NLLEvaluator(data, name="trainer")(client),
            **await BenchmarkEvaluator("gsm8k", renderer, max_examples=8, max_tokens=16)(sampler),
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(evaluate(chz.entrypoint(Options)))))
