"""The recipe `twenty_questions` with what its command line has no option for: few words, and an
answerer that is the served model."""

import asyncio

import chz
from tinker_cookbook.recipes.multiplayer_rl.twenty_questions import env, train as recipe
from tinker_cookbook.rl import train

WORDS = ["cat"] * 32


@chz.chz
class FewWords(env.TwentyQuestionsDatasetBuilder):
    def _get_train_and_test_words(self):
        return WORDS, WORDS[:1]


if __name__ == "__main__":
    options = chz.entrypoint(recipe.CLIConfig)
    config = recipe.build_config(options)
    words = FewWords(**{**chz.asdict(config.dataset_builder, shallow=True),
                        "answerer_base_model": options.model_name})
    asyncio.run(train.main(chz.replace(config, dataset_builder=words)))
