"""Lathe over plain HTTP, without the SDK: what a foreign, broken or hostile client can send."""

import math
import socket

import httpx

ADAM = {"learning_rate": 0.0, "beta1": 0.9, "beta2": 0.95, "eps": 1e-12, "weight_decay": 0.0,
        "grad_clip_norm": 0.0}


class RawApi:
    """One key's view of a running server."""

    def __init__(self, server, key=None):
        self.server = server
        self.key = server.api_key if key is None else key
        self.http = httpx.Client(base_url=server.url, timeout=60,
                                 headers={"X-API-Key": self.key} if self.key else {})

    def close(self):
        self.http.close()

    def request(self, method, path, **options):
        """`path` without a leading slash is below /api/v1/."""
        return self.http.request(method, path if path.startswith("/") else "/api/v1/" + path,
                                 **options)

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body=None, **options):
        return self.request("POST", path, **({} if body is None else {"json": body}), **options)

    def made(self, path, body):
        """Answer of a request that must succeed."""
        answer = self.post(path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def result(self, future):
        """Polls until the result is there."""
        while True:
            answer = self.post("retrieve_future", {"request_id": future["request_id"],
                                                   "allow_metadata_only": False})
            assert answer.status_code == 200, answer.text
            if answer.json().get("type") != "try_again":
                return answer.json()

    def new_session(self):
        """One in which a missing seq_id counts as abandoned, as for the SDK."""
        answer = self.post("create_session", {"tags": [], "sdk_version": "raw"},
                           headers={"x-stainless-package-version": "raw"})
        assert answer.status_code == 200, answer.text
        return answer.json()["session_id"]

    def exchange(self, data):
        """Sends bytes over a connection of their own; (status, headers, body) of the answer, or
        (None, {}, b"") when the server just closed."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as connection:
            received = b""
            try:
                connection.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                pass
            try:
                while b"\r\n\r\n" not in received:
                    piece = connection.recv(65536)
                    if not piece:
                        return None, {}, b""
                    received += piece
                head, _, body = received.partition(b"\r\n\r\n")
                lines = head.decode().split("\r\n")
                headers = {name.lower(): value.strip() for name, value in
                           (line.split(":", 1) for line in lines[1:])}
                while len(body) < int(headers.get("content-length", 0)):
                    body += connection.recv(65536)
            except ConnectionResetError:
                return None, {}, b""
            return int(lines[0].split()[1]), headers, body


class RawModel:
    """A LoRA model that is trained step by step."""

    may_be_spoiled = False  # by a failed batch since the last grad_norm

    def __init__(self, api, seed=7, rank=4, session_id=None):
        self.api = api
        self.session_id = session_id or api.new_session()
        self.seq_id = 0
        self.model_id = api.result(api.made("create_model", {
            "session_id": self.session_id, "model_seq_id": 0,
            "base_model": api.server.model_name, "lora_config": {
                "rank": rank, "seed": seed, "train_unembed": True, "train_mlp": True,
                "train_attn": True}}))["model_id"]

    def next_seq_id(self):
        self.seq_id += 1
        return self.seq_id

    def body(self, data=None, loss_fn="cross_entropy", **changes):
        """A forward_backward as JSON."""
        self.may_be_spoiled = True
        return {"forward_backward_input": {"data": [datum()] if data is None else data,
                                           "loss_fn": loss_fn, **changes},
                "model_id": self.model_id, "seq_id": self.next_seq_id()}

    def forward_backward(self, **changes):
        return self.api.post("forward_backward", self.body(**changes))

    def loss(self):
        """Logprobs of the fixed datum under the present weights; adds no gradient."""
        was_spoiled = self.may_be_spoiled
        body = self.body()
        self.may_be_spoiled = was_spoiled
        body["forward_input"] = body.pop("forward_backward_input")
        result = self.api.result(self.api.made("forward", body))
        return result["loss_fn_outputs"][0]["logprobs"]["data"]

    def accumulate(self):
        was_spoiled = self.may_be_spoiled
        assert "error" not in self.api.result(self.forward_backward().json())
        self.may_be_spoiled = was_spoiled

    def optim_step(self, learning_rate=1e-3):
        return self.api.result(self.api.made("optim_step", {
            "model_id": self.model_id, "seq_id": self.next_seq_id(),
            "adam_params": {**ADAM, "learning_rate": learning_rate}}))

    def step(self):
        assert "error" not in self.optim_step()

    def grad_norm(self):
        """Of what was accumulated, which it clears; a step of size 0 leaves the weights alone. The
        step is refused once after a failed batch; then the gradient of `accumulate` counts."""
        result = self.optim_step(learning_rate=0.0)
        if self.may_be_spoiled and "the gradient is incomplete" in result.get("error", ""):
            self.accumulate()
            result = self.optim_step(learning_rate=0.0)
        self.may_be_spoiled = False
        return result["metrics"]["grad_norm"]


def tensor(values, dtype="float32", **changes):
    return {"data": values, "dtype": dtype, "shape": [len(values)], **changes}


def datum(tokens=(30, 31, 32), inputs=None, **changes):
    """A cross-entropy datum over `tokens`; `changes` replace or (None) remove loss inputs."""
    inputs = {"target_tokens": tensor([t + 1 for t in tokens], "int64"),
              "weights": tensor([1.0] * len(tokens)), **changes} if inputs is None else inputs
    return {"model_input": {"chunks": [{"type": "encoded_text", "tokens": list(tokens)}]},
            "loss_fn_inputs": {name: value for name, value in inputs.items() if value is not None}}


class Witness:
    """Two tenants with a model each. `check()` proves that what happened in between changed neither
    weights nor the accumulated gradient of the first, nor anything of the second."""

    def __init__(self, server):
        self.api = RawApi(server)
        self.other_api = RawApi(server, server.create_key("witness"))
        self.model = RawModel(self.api)
        self.other = RawModel(self.other_api, seed=8)
        self.model.accumulate()
        self.gradient = self.model.grad_norm()
        assert self.gradient > 0
        self.losses = self.model.loss(), self.other.loss()
        self.model.accumulate()

    def check(self):
        assert self.api.get("healthz").json() == {"status": "ok"}
        assert math.isclose(self.model.grad_norm(), self.gradient, rel_tol=1e-6)
        assert (self.model.loss(), self.other.loss()) == self.losses
        self.model.accumulate()

    def close(self):
        self.api.close()
        self.other_api.close()
