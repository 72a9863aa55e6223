"""`tinker_cookbook.distillation.train_off_policy` on a file of conversations; the cookbook has the
loop but no recipe of it."""

import asyncio

import chz
from tinker_cookbook.distillation import train_off_policy
from tinker_cookbook.distillation.datasets import TeacherConfig
from tinker_cookbook.supervised.data import FromConversationFileBuilder
from tinker_cookbook.supervised.types import ChatDatasetBuilderCommonConfig


@chz.chz
class Options:
    log_path: str
    model_name: str
    renderer_name: str
    data: str
    teacher_checkpoint: str
    learning_rate: float
    batch_size: int = 8


def main(options: Options):
    data = FromConversationFileBuilder(
        file_path=options.data,
        common_config=ChatDatasetBuilderCommonConfig(
            model_name_for_tokenizer=options.model_name, renderer_name=options.renderer_name,
            max_length=512, batch_size=options.batch_size))
    teacher = TeacherConfig(base_model=options.model_name,
                            load_checkpoint_path=options.teacher_checkpoint)
    asyncio.run(train_off_policy.main(train_off_policy.Config(
        learning_rate=options.learning_rate, model_name=options.model_name,
        recipe_name="off_policy_distillation", renderer_name=options.renderer_name, lora_rank=8,
        dataset_configs=[train_off_policy.DatasetWithTeacher(dataset_builder=data,
                                                             teacher_config=teacher)],
        batch_size=options.batch_size, n_teacher_targets=8, log_path=options.log_path)))


if __name__ == "__main__":
    main(chz.entrypoint(Options))
