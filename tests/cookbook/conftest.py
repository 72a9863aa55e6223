"""The recipes of tinker-cookbook, run as their users run them: `python -m RECIPE key=value ...` in a
folder where model and data sets are found under the names the recipes ask for. Needs the Python of
`.venv-cookbook`; nothing is downloaded."""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402

MODEL = "Qwen/Qwen3-8B"
# Longer than any healthy run takes.
RUN_LIMIT = 240


def values(rows, name):
    """Of the rows that have it: a trainer's last row is of no step."""
    return [row[name] for row in rows if name in row]


class Kitchen:
    """A running Lathe and the folder the recipes run in."""

    def __init__(self, server, folder):
        self.server = server
        self.folder = folder
        model = folder / MODEL
        model.parent.mkdir(parents=True)
        model.symlink_to(server.model)

    @property
    def environment(self):
        return {**os.environ, "TINKER_BASE_URL": self.server.url,
                "TINKER_API_KEY": self.server.api_key, "HF_HUB_OFFLINE": "1",
                "HF_HOME": str(self.folder / "hf"), "OMP_NUM_THREADS": "1",
                "TOKENIZERS_PARALLELISM": "false", "TQDM_DISABLE": "1",
                "PYTHONPATH": os.path.dirname(__file__)}

    def dataset(self, name, config="default", **splits):
        """A data set as the Hub keeps it: `name` is then found by `load_dataset`."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        files = []
        for split, rows in splits.items():
            self.write_rows(folder / f"{split}.jsonl", rows)
            files.append(f"  - split: {split}\n    path: {split}.jsonl\n")
        (folder / "README.md").write_text(
            f"---\nconfigs:\n- config_name: {config}\n  data_files:\n{''.join(files)}---\n")

    def write_rows(self, path, rows):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def gsm8k_sums(self):
        """Sums that come to 7, in the form of GSM8K; returns the questions."""
        rng = random.Random(0)
        rows = [{"question": f"What is {n} + {7 - n}?", "answer": f"{n} + {7 - n} = 7\n#### 7"}
                for n in range(8)]
        if not (self.folder / "openai").exists():
            self.dataset("openai/gsm8k", "main", train=rng.choices(rows, k=32), test=rows)
        return [row["question"] for row in rows]

    def output(self, module, **options):
        """What a program of the cookbook's says, run to its end."""
        command = [sys.executable, "-m", module, f"model_name={MODEL}",
                   *(f"{key}={value}" for key, value in options.items())]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, timeout=RUN_LIMIT,
                              capture_output=True, text=True)
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        return done.stdout

    def run(self, module, log, **options):
        """Runs a recipe to its end; returns one dict of metrics per logged step."""
        self.output(module, log_path=self.log(log), **options)
        return self.metrics(log)

    def log(self, name):
        return self.folder / "logs" / name

    def metrics(self, log):
        return [json.loads(line) for line in
                (self.log(log) / "metrics.jsonl").read_text().splitlines()]

    def checkpoints(self, log):
        return [json.loads(line) for line in
                (self.log(log) / "checkpoints.jsonl").read_text().splitlines()]

    def stored(self, log):
        """The checkpoints that are still there of those the run has saved."""
        import tinker

        paths = [record["state_path"] for record in self.checkpoints(log)]
        rest = tinker.ServiceClient(base_url=self.server.url,
                                    api_key=self.server.api_key).create_rest_client()
        run = paths[0].removeprefix("tinker://").split("/")[0]
        there = {c.tinker_path for c in rest.list_checkpoints(run).result().checkpoints}
        return [path.rpartition("/")[2] for path in paths if path in there]

    def interrupted_copy(self, log, name, batch):
        """The log folder of a run that was stopped after its checkpoint before this batch."""
        records = self.checkpoints(log)
        last = next(n for n, record in enumerate(records) if record.get("batch") == batch)
        self.log(name).mkdir(parents=True)
        self.write_rows(self.log(name) / "checkpoints.jsonl", records[:last + 1])

    def start_from(self, state_path, log):
        """Makes a recipe without an option for it begin with these weights and optimizer."""
        self.log(log).mkdir(parents=True)
        self.write_rows(self.log(log) / "checkpoints.jsonl",
                        [{"name": "warm", "batch": 0, "epoch": 0, "state_path": state_path}])

    def teach(self, name, conversations, num_steps, renderer_name, **lora_options):
        """A model that has seen these conversations, as {"state": path, "sampler": path}: a random
        model earns no reward at all, so there would be nothing for a recipe to improve."""
        import tinker
        from tinker_cookbook import renderers
        from tinker_cookbook.supervised.data import conversation_to_datum
        from tinker_cookbook.tokenizer_utils import get_tokenizer

        renderer = renderers.get_renderer(renderer_name, get_tokenizer(str(self.folder / MODEL)))
        data = [conversation_to_datum(messages, renderer, 512,
                                      renderers.TrainOnWhat.LAST_ASSISTANT_MESSAGE)
                for messages in conversations]
        with tinker.ServiceClient(base_url=self.server.url, api_key=self.server.api_key) as service:
            client = service.create_lora_training_client(
                MODEL, rank=8, seed=1, user_metadata={"renderer_name": renderer_name},
                **lora_options).result()
            steps = [(client.forward_backward(data, "cross_entropy"),
                      client.optim_step(tinker.AdamParams(learning_rate=1e-2)))
                     for _ in range(num_steps)]
            for step in steps:
                for future in step:
                    future.result()
            return {"state": client.save_state(name).result().path,
                    "sampler": client.save_weights_for_sampler(name).result().path}


@pytest.fixture(scope="session")
def kitchen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kitchen")
    with LatheServer(tiny_model(), name=MODEL) as server:
        yield Kitchen(server, folder)
    shutil.rmtree(folder, ignore_errors=True)
