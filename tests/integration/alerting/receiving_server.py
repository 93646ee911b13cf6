"""An HTTP server that writes down what it is sent, in the order of its answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    """One request, and what it was answered."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    status: int

    @property
    def decoded(self) -> Any:
        return json.loads(self.body)


Answer = tuple[int, Mapping[str, str], bytes]
OK: Answer = (200, {}, b"ok")


@dataclass
class Ledger:
    """What came in."""

    answer: Callable[[str, bytes], Answer] = lambda _path, _body: OK
    received: list[Received] = field(default_factory=list)
    at_once: dict[str, int] = field(default_factory=dict)
    """Requests under way, by path."""
    at_once_max: int = 0
    url: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        with self._lock:
            self.at_once[path] = self.at_once.get(path, 0) + 1
            self.at_once_max = max(self.at_once_max, self.at_once[path])
        answer = self.answer(path, body)
        with self._lock:
            self.received.append(Received(path, headers, body, answer[0]))
            self.at_once[path] -= 1
        return answer


@contextmanager
def receiving(answer: Callable[[str, bytes], Answer] = lambda _path, _body: OK) -> Iterator[Ledger]:
    """A running server; its ledger's `url` has no path."""
    ledger = Ledger(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer_post(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, headers, text = ledger.take(self.path, dict(self.headers), body)
            try:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
            except OSError:
                self.close_connection = True  # Whoever asked is dead.

        do_POST = answer_post  # noqa: N815 - the name by which the library asks for it

        def log_message(self, *args: object) -> None:
            """Nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that was killed is no error here."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    ledger.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield ledger
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
