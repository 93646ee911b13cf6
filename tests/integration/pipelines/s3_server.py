"""An S3 server of its own process, and a lake on it.

    python -m tests.integration.pipelines.s3_server

It prints its port, then serves until it is killed. What it holds is in its memory. How many
requests it has had is returned at COUNTS.
"""

from __future__ import annotations

import http.client
import itertools
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from werkzeug.serving import make_server

ROOT = Path(__file__).parents[3]
BUCKET = "tidemark"
COUNTS = "/tidemark-requests"


def options(port: int) -> dict[str, str]:
    """What a client has to know, in the words of the environment."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "tidemark",
        "AWS_SECRET_ACCESS_KEY": "tidemark",
    }


@contextmanager
def s3_server() -> Iterator[Mapping[str, str]]:
    """Serve with one empty bucket; gives the options that reach it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.pipelines.s3_server"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    )
    with process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            ask = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            ask.request("PUT", f"/{BUCKET}")
            assert ask.getresponse().status == 200
            ask.close()
            yield options(port)
        finally:
            process.kill()


def requests_so_far(environment: Mapping[str, str]) -> int:
    """Requests that the server of these options has had, but for those that ask so."""
    ask = http.client.HTTPConnection(
        environment["AWS_ENDPOINT_URL"].removeprefix("http://"), timeout=20
    )
    ask.request("GET", COUNTS)
    found = int(ask.getresponse().read())
    ask.close()
    return found


class Counted:
    """A WSGI application whose requests are counted."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._counter = itertools.count()
        self._count = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"] == COUNTS:
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [str(self._count).encode()]
        self._count = next(self._counter) + 1
        return self._application(environ, start_response)


def serve() -> None:
    """Take a free port, print it, serve."""
    from moto.moto_server.werkzeug_app import (  # noqa: PLC0415
        DomainDispatcherApplication,
        create_backend_app,
    )

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, Counted(application), threaded=True)
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    serve()
