"""A package index on this machine's loopback, and wheels for it."""

from __future__ import annotations

import contextlib
import io
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TAG = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel(
    name: str, files: dict[str, bytes | str] | None = None, *, requires: str = "", called: str = "", **info: str
) -> bytes:
    """As small as zip can make it. `info`: other contents of METADATA, WHEEL or RECORD."""
    metadata = f"Metadata-Version: 2.1\nName: {called or name}\nVersion: 1.0\n{requires}"
    facts = {"METADATA": metadata, "WHEEL": TAG, "RECORD": ""} | {key.upper(): text for key, text in info.items()}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for key, text in facts.items():
            archive.writestr(f"{name}-1.0.dist-info/{key}", text)
        for path, content in (files or {}).items():
            archive.writestr(path, content)
    return made.getvalue()


class Index:
    """Serves `wheels`, and remembers which paths were requested. `files_at`: the address of its files, if elsewhere."""

    def __init__(self, files_at: str = "") -> None:
        self.wheels: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.files_at = files_at
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.requests.append(self.path)
                status, body = index.answer(self.path)
                self.send_response(status)
                page = self.path.endswith("/")
                self.send_header("Content-Type", "text/html" if page else "application/octet-stream")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(body if self.command == "GET" else b"")

            do_HEAD = do_GET  # noqa: N815 - the name is the library's

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.target = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self.target}/simple"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, path: str) -> tuple[int, bytes]:
        name = path.removeprefix("/simple/").strip("/")
        if path.startswith("/simple/") and name in self.wheels:
            file = f"{name}-1.0-py3-none-any.whl"
            return 200, f'<a href="{self.files_at}/files/{file}">{file}</a>'.encode()
        found = self.wheels.get(path.rpartition("/")[2].partition("-")[0])
        return (404, b"") if found is None else (200, found)


def indexing(files_at: str = "") -> contextlib.closing[Index]:
    return contextlib.closing(Index(files_at))
