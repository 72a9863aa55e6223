"""An HTTP API that answers what a test wants, also what no server should: slowly, cut short, or never."""

import json
import socket
import threading


def answer_of(body, status=200, head=""):
    """A whole answer: `body` as JSON, and more lines of the head, each with its line end."""
    data = json.dumps(body).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n{head}\r\n".encode() + data


class FakeApi:
    """`with FakeApi(answer) as api:` serves `api.url`. `answer(path)` returns the bytes to send before the connection
    is closed, or None to leave it open without an answer. `api.asked` has the paths so far."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []
        self.open = []
        self.server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.server.getsockname()[1]}"
        self.thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()
        self.thread.join()
        for connection in self.open:
            connection.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        request = b""
        while b"\r\n\r\n" not in request:
            request += connection.recv(65536)
        head, body = request.split(b"\r\n\r\n", 1)
        fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
        while len(body) < int(fields[b"Content-Length"]):
            body += connection.recv(65536)
        path = head.split()[1].decode().removeprefix("/api/v1/")
        self.asked.append(path)
        data = self.answer(path)
        if data is None:
            self.open.append(connection)
            return
        try:
            connection.sendall(data)
        except OSError:  # the client has gone
            pass
        connection.close()
