"""The bad-input table, row by row under its numbers: one telling case each, in the files
test_bad_input_*.py by the table's headings. More cases of a row are in the other files of this folder.
After each the server lives and nothing has changed."""

from support.raw_api import ADAM, RawModel

# Rows that ask for what Lathe has not, and why there is nothing to refuse.
NOT_OFFERED = {
    40: "the API has no field for a regular expression, a grammar or a chat template",
    47: "nobody uploads safetensors: checkpoints are written by the worker alone; its reader of base "
        "models is fuzzed (tests/fuzz/safetensors_fuzz.cc)",
    48: "nobody uploads archives: they are generated, never unpacked",
}
ROWS = {}


def row(number):
    def keep(case):
        assert number not in ROWS
        ROWS[number] = case
        return case
    return keep


def rows_of(module):
    """Numbers of the rows that the module holds, for its test."""
    return sorted(number for number, case in ROWS.items() if case.__module__ == module)


class World:
    """What the cases send from: a tenant with a model and a sampler."""

    def __init__(self, witness):
        self.api, self.server = witness.api, witness.api.server
        self.model = RawModel(self.api)
        self.sampler = self.api.made("create_sampling_session", {
            "session_id": self.model.session_id, "sampling_session_seq_id": 0,
            "base_model": self.server.model_name})["sampling_session_id"]

    def post(self, path, body, **options):
        return self.api.post(path, body, **options)

    def json_text(self, text):
        return self.api.post("optim_step", content=text,
                             headers={"Content-Type": "application/json"})

    def protobuf(self, content, **headers):
        return self.api.post("forward_backward", content=content,
                             headers={"Content-Type": "application/x-protobuf", **headers})

    def step(self, seq_id, **adam):
        return {"model_id": self.model.model_id, "seq_id": seq_id, "adam_params": {**ADAM, **adam}}

    def sample(self, prompt=None, num_samples=1, **params):
        return self.post("asample", {
            "sampling_session_id": self.sampler, "seq_id": 0, "num_samples": num_samples,
            "prompt": {"chunks": prompt or [{"type": "encoded_text", "tokens": [30]}]},
            "sampling_params": {"max_tokens": 1, **params}})

    def fails(self, *words, **changes):
        """A batch that is accepted, and whose future says what is wrong with it."""
        model = RawModel(self.api)
        result = self.api.result(model.forward_backward(**changes).json())
        assert result["category"] == "user", result
        for word in words:
            assert word in result["error"], (word, result["error"])
