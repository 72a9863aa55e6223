"""Clients of chaos.py that go away: one kind comes back with the same requests, one never does."""

import json
import socket

from chaos_history import Wrong
from chaos_load import Model, RawClient, sample_body
from support.stubborn_api import StubbornApi

# Of the engine that they are used with, in seconds: who is away for LONG is parked meanwhile. The
# engine notes a sign of life once a minute, so it may forget a session so much earlier.
SESSION_TIMEOUT = 45
LONG = 55
SESSION_KEPT = LONG + 60 + 45
# What waits for a request that nobody sends goes on then.
GAP_TIMEOUT = 60


class Returning(RawClient):
    """Goes away in the middle of a step, after a part of its requests or after all, and hears of no
    result. When it is back it sends the same requests again: those that were accepted are known,
    with the same ids, and the step is the undisturbed one."""

    def send(self, bodies):
        if self.random.random() < 0.5:
            return super().send(bodies)
        seconds = self.random.choices((0.2, 2, 8, LONG), (8, 6, 3, 1))[0]
        # Who is away for long loses what it has added to an open gradient.
        count = len(bodies) if seconds == LONG else self.random.randint(1, len(bodies))
        first = super().send(bodies[:count])
        self.is_away = True
        self.api.close()
        self.history.stopping.wait(seconds)
        self.api = StubbornApi(self.api.server, self.api.key, patience=self.PATIENCE)
        self.is_away = False
        again = super().send(bodies)
        for seq_id, future in first.items():
            if again[seq_id] != future:
                raise Wrong("I1", f"{self.name} was told {future} for seq_id {seq_id}, and "
                                  f"{again[seq_id]} for the same request later")
        return again


class Vanishing(RawClient):
    """Leaves work behind, and often half a request, and asks for nothing of it. It is never seen
    again: what it has submitted ends, what nobody can complete is forgotten with its session."""

    def live(self, shape, is_serial):
        self.is_away = False
        model = self.model = Model(self, self.api, shape, is_serial)
        model.step = self.random.randrange(12)
        for operation, body in self.random_part(model):
            self.submit(operation, body)
        self.submit("forward_backward", {**model.body(), "seq_id": model.seq_id + 2})  # a gap
        if self.random.random() < 0.5:
            self.leave_within("optim_step", model.step_bodies()[-1][1])
        self.is_away = True
        self.history.stopping.wait(self.random.uniform(3, 10))

    def random_part(self, model):
        sampler = model.sampler() if self.random.random() < 0.5 else None
        bodies = model.step_bodies()
        if sampler:
            bodies.append(("asample", sample_body(sampler, 1)))
        if not model.is_serial and self.random.random() < 0.5:
            bodies[:2] = reversed(bodies[:2])
        return bodies[:self.random.randint(1, len(bodies))]

    def leave_within(self, operation, body):
        """A connection that ends after a part of its request, or before the answer."""
        content = json.dumps(body).encode()
        head = (f"POST /api/v1/{operation} HTTP/1.1\r\nHost: lathe\r\nX-API-Key: {self.api.key}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n")
        part = self.random.choice((len(content), len(content) // 2, 0))
        try:
            with socket.create_connection(("127.0.0.1", self.api.server.port), 5) as connection:
                connection.sendall(head.encode() + content[:part])
        except OSError:  # there is no gateway at the moment
            pass

    def finish(self):
        """It has gone."""
