"""A client of the server's events."""

import contextlib
import json
import queue
import socket
import threading
from types import SimpleNamespace

import httpx


class EventStream:
    """Receives events on a thread of its own, from the first one on.

    `id` is that of the last event that next() returned.
    """

    def __init__(self, server, runs=(), topics=None, key=None, last_id=None):
        params = {"runs": ",".join(runs)} | ({} if topics is None else {"topics": topics})
        headers = {"X-API-Key": key or server.api_key} | ({} if last_id is None else {"Last-Event-ID": last_id})
        self.client = httpx.Client(timeout=httpx.Timeout(30, read=None))
        request = self.client.build_request("GET", f"{server.url}/api/v1/events", params=params, headers=headers)
        self.answer = self.client.send(request, stream=True)
        self.id = None
        self.events = queue.Queue()
        self.thread = threading.Thread(target=self._receive, daemon=True)
        if self.answer.status_code == 200:
            self.thread.start()
        else:
            self.answer.read()

    def _receive(self):
        fields = {}
        try:
            for line in self.answer.iter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif fields.get("event"):
                    self.events.put(SimpleNamespace(name=fields["event"], data=json.loads(fields["data"]),
                                                    id=fields["id"]))
                    fields = {}
        except (httpx.HTTPError, httpx.StreamError, AttributeError, OSError):
            pass
        self.events.put(None)

    def next(self, name=None, timeout=30):
        """The next event, or the next one of that name. None: the stream has ended."""
        while True:
            event = self.events.get(timeout=timeout)
            if event is None:
                return None
            self.id = event.id
            if name is None or event.name == name:
                return event

    def points(self, metric, timeout=30):
        """(step, value) of the next points of a metric."""
        while True:
            event = self.next("metrics", timeout)
            for series in event.data["series"] if event else ():
                if series["name"] == metric:
                    return list(zip(series["steps"], series["values"]))
            assert event is not None, "the stream has ended"

    def close(self):
        # A close alone would wait for the thread that reads.
        with contextlib.suppress(OSError):
            self.answer.extensions["network_stream"].get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self.answer.close()
        self.client.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
