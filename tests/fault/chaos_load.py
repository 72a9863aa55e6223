"""Clients of chaos.py: over plain HTTP and over the SDK. Everything that they are told, they check.
"""

import collections
import random
import re
import threading
import time

from chaos_history import History, Table, Unlucky, Wrong, passes_of, rank_of
from support.raw_api import RawModel, datum
from support.sdk import resolved
from support.stubborn_api import StubbornApi

LEARNING_RATE = 1e-3
# Steps of a program; then its client begins another model in another session.
NUM_STEPS = 24
NUM_SHAPES = 2
# What a failed request may say: it was refused for what was done to the server, not lost.
REASONS = re.compile("No space left|Input/output error|no room|disk is full"
                     "|(?:PUT|GET|POST|HEAD) s3://|the store (?:took|has)"
                     "|the worker (?:died|stopped)|running whenever"
                     "|shutting down|engine is stopping")


class Model(RawModel):
    """One life of a program: a model and its numbers, step after step."""

    def __init__(self, client, api, shape, is_serial):
        self.client, self.shape, self.step = client, shape, 0
        session = api.new_session() if is_serial else api.made(
            "create_session", {"tags": [], "sdk_version": "raw"})["session_id"]
        self.is_serial = is_serial
        self.samplers = 0
        self.seq_id = 0
        self.api, self.session_id = api, session
        body = {"session_id": session, "model_seq_id": 0, "base_model": api.server.model_name,
                "lora_config": {"rank": rank_of(shape), "seed": 7 + shape, "train_unembed": True,
                                "train_mlp": True, "train_attn": True}}
        self.model_id = client.must("create_model", body)["model_id"]

    def step_bodies(self):
        adam = {"learning_rate": LEARNING_RATE, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8,
                "weight_decay": 0.0, "grad_clip_norm": 0.0}
        bodies = [("forward_backward", self.body(data=[datum(tokens)] * count))
                  for tokens, count in passes_of(self.shape, self.step)]
        return bodies + [("optim_step", {"model_id": self.model_id, "seq_id": self.next_seq_id(),
                                         "adam_params": adam})]

    def forward_body(self):
        body = self.body()
        body["forward_input"] = body.pop("forward_backward_input")
        return body

    def sampler(self):
        """A sampling session of the weights as they are."""
        self.samplers += 1
        return self.client.must("save_weights_for_sampler", {
            "model_id": self.model_id, "seq_id": self.next_seq_id(),
            "sampling_session_seq_id": self.samplers})["sampling_session_id"]


def sample_body(sampler, step):
    return {"sampling_session_id": sampler, "seq_id": 0, "num_samples": 2,
            "prompt": {"chunks": [{"type": "encoded_text", "tokens": [30, 31, 32]}]},
            "sampling_params": {"max_tokens": 12, "seed": step, "stop": [], "temperature": 1.0,
                                "top_k": -1, "top_p": 1.0}}


def logprobs_of(result):
    return result["loss_fn_outputs"][0]["logprobs"]["data"]


def tokens_of(result):
    return [sequence["tokens"] for sequence in result["sequences"]]


class RawClient:
    """Repeats a program over plain HTTP. Everything that it is told, it checks."""

    PATIENCE = 180

    def __init__(self, name, server, key, history, table, seed):
        self.name, self.history, self.table = name, history, table
        self.random = random.Random(f"{seed}-{name}")
        self.api = StubbornApi(server, key, patience=self.PATIENCE)
        self.is_calm = False
        self.strangers = []  # other tenants' clients
        self.given = collections.deque(maxlen=50)  # (when, request_id, bytes of the result)
        self.last_request_id = None
        self.saved = {}  # path: (shape, step)
        self.model = None
        self.is_away = False

    # ---- one request

    def submit(self, operation, body):
        deadline = time.monotonic() + self.PATIENCE
        while True:
            answer = self.api.post(operation, body)
            # A bound was reached, as after a full disk: later is another matter.
            if answer.status_code != 429 or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        if answer.status_code != 200:
            raise Wrong("I1", f"{operation} of {self.name}: {answer.status_code} {answer.text}")
        self.last_request_id = answer.json()["request_id"]
        return operation, self.last_request_id

    def poll(self, request_id):
        """(bytes, JSON) of the result."""
        deadline = time.monotonic() + self.PATIENCE
        while True:
            answer = self.api.post("retrieve_future", {"request_id": request_id,
                                                       "allow_metadata_only": False})
            if answer.status_code != 200:
                raise Wrong("I1", f"{request_id} was acknowledged to {self.name}, its poll says "
                                  f"{answer.status_code} {answer.text}")
            content = answer.json()
            if content.get("type") != "try_again":
                return answer.content, content
            if time.monotonic() > deadline:
                raise Wrong("I7", f"{request_id} of {self.name} has no result after "
                                  f"{self.PATIENCE} s: {content}")

    def wait(self, future):
        operation, request_id = future
        content, result = self.poll(request_id)
        self.history.note(self.name, operation)
        if self.random.random() < 0.1:
            again, _ = self.poll(request_id)
            self.check_same(request_id, content, again)
            self.given.append((time.monotonic(), request_id, content))
        return result

    def check_same(self, request_id, first, again):
        if first != again:
            raise Wrong("I3", f"two reads of {request_id} differ: {first!r} and {again!r}")

    def must(self, operation, body):
        """The result of a request; Unlucky: it failed for a reason that was done to it."""
        result = self.wait(self.submit(operation, body))
        if "error" in result:
            raise Unlucky(self.reason(operation, result))
        return result

    def reason(self, operation, result):
        reason = REASONS.search(result["error"])
        if result.get("category") != "server" or not reason:
            raise Wrong("I1", f"{operation} of {self.name}: {result}")
        return f"{operation}: {reason.group()}"

    # ---- the program

    def run(self):
        """Until the history is over; on a thread."""
        threading.Thread(target=self.send_heartbeats, daemon=True).start()
        shape = self.random.randrange(NUM_SHAPES)
        while not self.history.stopping.is_set():
            try:
                self.live(shape, is_serial=self.random.random() < 0.5)
            except Unlucky as unlucky:
                self.history.record_failure(str(unlucky))
            except Wrong as wrong:
                self.history.violate(*wrong.args)
            except Exception as error:  # what a client must never see
                self.history.violate("I1", f"{self.name}: {type(error).__name__} {error}")
            shape = (shape + 1) % NUM_SHAPES

    def live(self, shape, is_serial):
        self.model = Model(self, self.api, shape, is_serial)
        version = None
        if self.is_calm:
            self.forward()
        while self.model.step < NUM_STEPS and not self.history.stopping.is_set():
            self.do_step()
            step = self.model.step
            if step % 4 == 3:
                version = self.model.sampler(), step
            if version:
                self.sample(*version)
            if step % 6 == 2:
                self.save()
            if step % 8 == 5 or self.is_calm:
                self.forward()
            if not self.is_calm:
                self.look_around()
        if self.history.stopping.is_set():
            return
        self.api.post(f"sessions/{self.model.session_id}/finish", {})

    def do_step(self):
        """One step, its requests all submitted before the first is waited for."""
        model = self.model
        bodies = model.step_bodies()
        if not model.is_serial and self.random.random() < 0.5:
            bodies[:2] = reversed(bodies[:2])
        futures = self.send(bodies)
        results = [self.wait(futures[seq_id]) for seq_id in sorted(futures)]
        failed = ["error" in result for result in results]
        if not any(failed):
            numbers = [results[0]["metrics"]["loss:sum"], results[1]["metrics"]["loss:sum"],
                       results[2]["metrics"]["grad_norm"]]
            self.check("numbers", numbers, "a step")
            model.step += 1
            return
        if any(failed[:2]) and not failed[2]:
            raise Wrong("I2", f"a step was applied to a part of its gradient: {results}")
        # Of a step after a failure, the failure is the reason.
        for operation, result in zip(("forward_backward",) * 2 + ("optim_step",), results):
            if "error" in result and not (any(failed[:2]) and operation == "optim_step"):
                self.history.record_failure(self.reason(operation, result))
        self.forward()  # nothing of it was applied
        raise Unlucky("a step was given up")

    def send(self, bodies):
        """{seq_id: what to wait for} of requests that are submitted."""
        return {body["seq_id"]: self.submit(operation, body) for operation, body in bodies}

    def check(self, kind, value, what):
        key = (self.model.shape, self.model.step)
        self.table.check(kind, key, value, self.is_calm, f"{what} of {self.name}")

    def forward(self):
        result = self.must("forward", self.model.forward_body())
        self.check("logprobs", logprobs_of(result), "forward")

    def sample(self, sampler, step):
        """Of the version that was published after `step`: always the same."""
        result = self.must("asample", {**sample_body(sampler, step), "seq_id": self.model.step})
        self.table.check("tokens", (self.model.shape, step), tokens_of(result), self.is_calm,
                         f"sample of {self.name}")

    def save(self):
        model = self.model
        result = self.wait(self.submit("save_weights", {
            "model_id": model.model_id, "seq_id": model.next_seq_id(), "path": f"s{model.step}"}))
        if "error" in result:
            return self.history.record_failure(self.reason("save_weights", result))
        self.saved[result["path"]] = (model.shape, model.step)
        if len(self.saved) > 6:
            self.check_saved(next(iter(self.saved)))

    def check_saved(self, path):
        """I4: it loads, and has the weights of its moment. Then it is deleted."""
        key = self.saved.pop(path)
        session = self.api.new_session()
        try:
            model_id = self.must("load_weights", {"session_id": session, "model_seq_id": 0,
                                                  "path": path, "optimizer": True})["model_id"]
        except Unlucky as unlucky:
            return self.history.record_failure(str(unlucky))
        except Wrong as wrong:
            raise Wrong("I4", f"complete checkpoint {path}: {wrong.args[1]}") from None
        loaded = RawModel.__new__(RawModel)
        loaded.api, loaded.model_id, loaded.seq_id, loaded.session_id = (
            self.api, model_id, 0, session)
        body = loaded.body()
        body["forward_input"] = body.pop("forward_backward_input")
        value = logprobs_of(self.must("forward", body))
        if key in self.table.logprobs and self.table.logprobs[key] != value:
            raise Wrong("I4", f"{path} of (shape, step) {key} has logprobs {value}, the live model "
                              f"had {self.table.logprobs[key]}")
        self.api.post(f"sessions/{session}/finish", {})
        run, _, name = path.removeprefix("tinker://").partition("/")
        answer = self.api.request("DELETE", f"training_runs/{run}/checkpoints/{name}")
        # A repetition after a lost answer finds that it is gone.
        if answer.status_code not in (204, 404):
            raise Wrong("I4", f"deleting {path}: {answer.status_code} {answer.text}")

    # ---- what else must hold

    def send_heartbeats(self):
        """As the SDK does, on a thread and connections of its own."""
        api = StubbornApi(self.api.server, self.api.key, patience=self.PATIENCE)
        while not self.history.stopping.wait(10):
            if self.model is None or self.is_away:
                continue
            try:
                api.post("session_heartbeat", {"session_id": self.model.session_id})
            except Exception as error:
                self.history.violate("I1", f"heartbeat of {self.name}: {error}")

    def look_around(self):
        if self.given and self.random.random() < 0.2:
            _, request_id, content = self.given.popleft()
            self.check_same(request_id, content, self.poll(request_id)[0])
        if self.strangers and self.random.random() < 0.1:
            self.check_strangers()

    def check_strangers(self):
        """I5: nothing of another tenant's can be seen, polled, used or loaded."""
        other = self.random.choice(self.strangers)
        for operation, body in (
                ("retrieve_future", {"request_id": other.last_request_id}),
                ("get_info", {"model_id": other.model.model_id if other.model else None}),
                ("load_weights", {"session_id": self.model.session_id, "model_seq_id": 9,
                                  "path": next(iter(list(other.saved)), None),
                                  "optimizer": True})):
            if None in body.values():
                continue
            answer = self.api.post(operation, body)
            if answer.status_code != 404:
                raise Wrong("I5", f"{self.name} asks for {body} of {other.name}: "
                                  f"{answer.status_code} {answer.text}")
        listing = self.api.get("checkpoints?limit=1000").json()["checkpoints"]
        shown = {one["tinker_path"] for one in listing}
        if theirs := shown & set(list(other.saved)):
            raise Wrong("I5", f"{self.name} is shown {theirs} of {other.name}")

    def finish(self):
        """After all faults: what was given stays as it was, what was saved loads."""
        for _, request_id, content in list(self.given):
            self.check_same(request_id, content, self.poll(request_id)[0])
        for path in list(self.saved):
            self.check_saved(path)


class SdkClient:
    """The same over the stock SDK."""

    def __init__(self, name, server, key, history, table, is_calm=False):
        import tinker
        self.name, self.history, self.table, self.is_calm = name, history, table, is_calm
        self.is_away = False
        self.base_model = server.model_name
        self.tinker = tinker
        self.service = tinker.ServiceClient(base_url=server.url, api_key=key)
        self.api = StubbornApi(server, key, patience=RawClient.PATIENCE)

    def run(self):
        while not self.history.stopping.is_set():
            try:
                self.live()
            except Wrong as wrong:
                self.history.violate(*wrong.args)
            except Exception as error:
                reason = REASONS.search(str(error))
                if reason and isinstance(error, self.tinker.TinkerError):
                    self.history.record_failure(f"SDK: {reason.group()}")
                elif not self.history.stopping.is_set():
                    self.history.violate("I1", f"{self.name}: {type(error).__name__} {error}")

    def datums(self, tokens, count):
        types = self.tinker.types
        return [types.Datum(model_input=types.ModelInput.from_ints(list(tokens)),
                            loss_fn_inputs={"target_tokens": [one + 1 for one in tokens],
                                            "weights": [1.0] * len(tokens)})] * count

    def live(self):
        types = self.tinker.types
        training = resolved(self.service.create_lora_training_client(
            self.base_model, rank=4, seed=7))
        self.history.note(self.name, "create_model")
        for step in range(NUM_STEPS):
            if self.history.stopping.is_set():
                return
            passes = [training.forward_backward(self.datums(tokens, count), "cross_entropy")
                      for tokens, count in passes_of(0, step)]
            update = training.optim_step(types.AdamParams(learning_rate=LEARNING_RATE))
            losses = [done.result(timeout=RawClient.PATIENCE).metrics["loss:sum"]
                      for done in passes]
            update.result(timeout=RawClient.PATIENCE)
            for operation in ("forward_backward", "forward_backward", "optim_step"):
                self.history.note(self.name, operation)
            self.table.check("sdk_losses", (0, step), losses, self.is_calm, self.name)
        # Its session lasts as long as the run.
        self.api.result(self.api.made("unload_model", {"model_id": training.model_id}))

    def finish(self):
        if hasattr(self.service, "close"):
            self.service.close("success")


def start_threads(clients):
    threads = [threading.Thread(target=client.run, name=client.name, daemon=True)
               for client in clients]
    for thread in threads:
        thread.start()
    return threads


def undisturbed(server, with_sdk):
    """The table of what is right, by a server that nothing disturbs."""
    table, history = Table(), History()
    for shape in range(NUM_SHAPES):
        client = RawClient(f"calm-{shape}", server, server.api_key, history, table, seed=0)
        client.is_calm = True
        client.live(shape, is_serial=True)
    if with_sdk:
        client = SdkClient("calm-sdk", server, server.api_key, history, table, is_calm=True)
        client.live()
        client.finish()
    return table
