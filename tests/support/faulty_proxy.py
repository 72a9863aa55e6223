"""A proxy in this process, of TCP or unix sockets, that does to connections what networks do."""

import enum
import random
import socket
import struct
import threading
import time


class Fault(enum.Enum):
    NONE = "passes everything on"
    CUT_ANSWER = "resets both sides instead of passing on the first byte of an answer"
    CUT_REQUEST = "resets both sides after half of the first piece of a request"
    HALF_CLOSE = "ends the client's direction towards the server after the first piece"
    DELAY = "holds every piece back for `delay` seconds"
    BLACK_HOLE = "takes everything, passes nothing on, never closes"
    CORRUPT = "flips a bit of the first piece of the answer"


def reset(connection):
    """Closes so that the other side sees a reset where it can, and wakes whoever reads here."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    except OSError:
        pass


class FaultyProxy:
    """`with FaultyProxy(port) as proxy:` listens on proxy.port, FaultyProxy(path, listen=other_path)
    on a unix socket. `choose` is called for each new connection and gives its fault; connections
    that are open keep theirs. What `hold`, `swallow` and `cut_all` do, they do to all."""

    def __init__(self, upstream, choose=lambda: Fault.NONE, delay=0.05, seed=0, listen=None):
        self.choose = choose
        self.delay = delay
        self.random = random.Random(seed)
        self._upstream = upstream
        if listen is None:
            self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
            self.port = self._listener.getsockname()[1]
            self.url = f"http://127.0.0.1:{self.port}"
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(listen))
            self._listener.listen(512)
        self.num_faults = 0
        self.num_connections = 0
        self.hold = threading.Event()  # set: nothing is passed on until it is clear
        self.swallow = threading.Event()  # set: what comes is lost, and all after it too
        self._open = set()
        self._lock = threading.Lock()

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listener.close()
        self.cut_all()

    def cut_all(self):
        """Resets every connection that is open."""
        with self._lock:
            connections, self._open = self._open, set()
        for connection in connections:
            reset(connection)

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.num_connections += 1
            threading.Thread(target=self._serve, args=(client, self.choose()), daemon=True).start()

    def _connect(self):
        if isinstance(self._upstream, int):
            return socket.create_connection(("127.0.0.1", self._upstream))
        server = socket.socket(socket.AF_UNIX)
        server.connect(str(self._upstream))
        return server

    def _serve(self, client, fault):
        try:
            server = self._connect()
        except OSError:
            return reset(client)
        for connection in (client, server):
            if connection.family == socket.AF_INET:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open |= {client, server}
        back = threading.Thread(target=self._pump, args=(server, client, fault, False), daemon=True)
        back.start()
        self._pump(client, server, fault, True)
        back.join()
        with self._lock:
            self._open -= {client, server}
        for connection in (client, server):
            try:
                connection.close()
            except OSError:
                pass

    def _pump(self, source, sink, fault, is_request):
        is_first = True
        is_lost = fault is Fault.BLACK_HOLE
        try:
            while piece := source.recv(65536):
                # After a loss, drop the rest too: the stream cannot continue after a gap.
                is_lost = is_lost or self.swallow.is_set()
                if is_lost:
                    continue
                while self.hold.is_set():
                    time.sleep(0.01)
                if fault is Fault.DELAY:
                    time.sleep(self.delay)
                if fault is Fault.CUT_ANSWER and not is_request:
                    return self._reset(source, sink)
                if fault is Fault.CUT_REQUEST and is_request:
                    sink.sendall(piece[:len(piece) // 2])
                    return self._reset(source, sink)
                if fault is Fault.CORRUPT and not is_request and is_first:
                    self.num_faults += 1
                    at = self.random.randrange(len(piece))
                    piece = piece[:at] + bytes([piece[at] ^ 1]) + piece[at + 1:]
                sink.sendall(piece)
                if fault is Fault.HALF_CLOSE and is_request:
                    self.num_faults += 1
                    return sink.shutdown(socket.SHUT_WR)
                is_first = False
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            self._reset(source, sink, counts=False)

    def _reset(self, source, sink, counts=True):
        self.num_faults += counts
        for connection in (source, sink):
            reset(connection)
