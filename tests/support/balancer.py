"""A TCP balancer in front of gateways, as a Service of Kubernetes is one: it sends each new connection to
a backend that was ready when it last looked, and leaves open connections alone."""

import asyncio
import contextlib
import itertools
import threading

import httpx
from support import plain_http
from support.waiting import wait_until

LOOK_SECONDS = 0.2


class Balancer:
    def __init__(self):
        self.backends = {}  # port: whether it was ready at the last look
        self._turns = itertools.count()
        self._is_over = threading.Event()
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,))
        self._looker = threading.Thread(target=self._look)

        self._thread.start()
        started.wait()
        self._looker.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._looker.join()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def add(self, port):
        """Returns once the backend gets connections."""
        self.backends[port] = False
        wait_until(lambda: self.backends[port], f"the gateway on port {port} to be ready")

    def wait_unready(self, port):
        wait_until(lambda: not self.backends[port], f"the gateway on port {port} to be unready")

    def _look(self):
        while not self._is_over.wait(LOOK_SECONDS):
            for port in list(self.backends):
                try:
                    answer = plain_http.get(f"http://127.0.0.1:{port}/readyz", timeout=5)
                    self.backends[port] = answer.status_code == 200
                except httpx.TransportError:
                    self.backends[port] = False

    def _serve(self, started):
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._forward, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _forward(self, reader, writer):
        ready = [port for port, is_ready in self.backends.items() if is_ready]
        with contextlib.suppress(OSError, asyncio.CancelledError):
            if ready:
                port = ready[next(self._turns) % len(ready)]
                back_reader, back_writer = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(self._pipe(reader, back_writer),
                                     self._pipe(back_reader, writer))
        writer.close()

    @staticmethod
    async def _pipe(reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()
