"""A client over plain HTTP that repeats what was not answered, as the SDK does but without its long
pauses: kills then cost a test what the service needs to come back, and no more."""

import threading
import time

import httpx
from support.raw_api import RawApi, RawModel, datum

PAUSE_SECONDS = 0.02


class StubbornApi(RawApi):
    """Repeats a request after a lost connection or a 5xx until `patience` seconds have passed."""

    def __init__(self, server, key=None, patience=60, url=None):
        super().__init__(server, key)
        self.patience = patience
        self.repeats = 0
        if url is not None:
            self.http.base_url = url

    def request(self, method, path, **options):
        deadline = time.monotonic() + self.patience
        while True:
            try:
                answer = super().request(method, path, **options)
                if answer.status_code < 500 or time.monotonic() > deadline:
                    return answer
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
            self.repeats += 1
            time.sleep(PAUSE_SECONDS)



class Program:
    """Training whose numbers are the multiset and the order of the steps that were applied: a lost,
    doubled or reordered gradient or step changes every later loss. Under `worker.numerics: exact`
    two programs with the same steps have the same numbers, bit for bit."""

    def __init__(self, api, seed=7):
        self.api = api
        self.model = RawModel(api, seed=seed)
        self.sizes = []
        self.numbers = []

    def forward_backward(self, tokens, num_datums=1):
        return self.api.made("forward_backward", self.model.body(data=[datum(tokens)] * num_datums))

    def optim_step(self, learning_rate=1e-3):
        return self.api.made("optim_step", {
            "model_id": self.model.model_id, "seq_id": self.model.next_seq_id(),
            "adam_params": {"learning_rate": learning_rate, "beta1": 0.9, "beta2": 0.95,
                            "eps": 1e-8, "weight_decay": 0.0, "grad_clip_norm": 0.0}})

    def step(self, num_datums=1):
        """Two gradients of `num_datums` x 3 tokens and an update, all submitted before the first is
        waited for; the update tells the norm of the gradient it took."""
        self.sizes.append(num_datums)
        first = 20 + len(self.sizes) % 500
        futures = [self.forward_backward((first, 31, 32), num_datums),
                   self.forward_backward((40, first, 42), num_datums)]
        update = self.optim_step()
        results = [self.api.result(future) for future in [*futures, update]]
        for result in results:
            assert "error" not in result, result
        self.numbers.append([results[0]["metrics"]["loss:sum"], results[1]["metrics"]["loss:sum"],
                             results[2]["metrics"]["grad_norm"]])

    def check(self):
        """The same steps by a model that nothing disturbs have the same numbers."""
        calm = Program(self.api)
        for size in self.sizes:
            calm.step(size)
        assert len(self.numbers) > 1 and calm.numbers[0] != calm.numbers[-1], "nothing was trained"
        assert self.numbers == calm.numbers


def steps_while(program, disturb, num_after=2):
    """Steps without a pause until `disturb` has returned, and a few more."""
    over = threading.Event()
    failures = []

    def run():
        try:
            disturb()
        except BaseException as failure:
            failures.append(failure)
        finally:
            over.set()

    thread = threading.Thread(target=run)
    program.step()
    thread.start()
    while not over.is_set():
        program.step()
    thread.join()
    if failures:
        raise failures[0]
    for _ in range(num_after):
        program.step()
