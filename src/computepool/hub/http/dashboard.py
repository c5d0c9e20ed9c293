"""The dashboard: the static export of web/, read once and served from memory.

This module decides the media type and the Content-Security-Policy of every file. A requested path is looked up in a
dictionary and never reaches the disk.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from computepool.hub.settings import Settings

logger = logging.getLogger(__name__)

#: The placeholder for the path prefix, under which the export was built; the hub replaces it by its own.
MARKER = b"/__pool__"
NONE = "none"
_PACKAGE = Path(__file__).parents[2]
_INSTALLED = _PACKAGE / "_dashboard"
_CHECKOUT = _PACKAGE.parents[1] / "web" / "out"
_NOT_FOUND = "/404.html"
#: Prefixes of routes, which answer unknown paths themselves.
_ROUTES = ("/api", "/healthz", "/metrics", "/signin", "/signout")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",  # fetched by Next.js when a link is followed
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".ico": "image/x-icon",
    ".png": "image/png",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
}
_TEXTS = frozenset({".html", ".js", ".css", ".txt", ".json", ".webmanifest", ".svg"})
_IMMUTABLE = "public, max-age=31536000, immutable"
_REVALIDATE = "no-cache"
_GZIP_LEAST_BYTES = 512
_INLINE = {
    kind: re.compile(rf"<{kind}(?![^>]*\ssrc=)[^>]*>(.*?)</{kind}>".encode(), re.DOTALL) for kind in ("script", "style")
}


@dataclass(frozen=True)
class File:
    body: bytes
    media_type: str
    cache: str
    policy: str | None  #: for a page

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest()[:32]

    @cached_property
    def packed(self) -> bytes | None:
        """The compressed body, made when it is first requested: most hubs of a test run never need it."""
        if len(self.body) < _GZIP_LEAST_BYTES or self.media_type.startswith(("image/p", "image/w", "font/")):
            return None
        packed = gzip.compress(self.body, 9, mtime=0)
        return packed if len(packed) < len(self.body) else None

    def answer(self, request_headers: Headers, *, status: int = 200) -> Response:
        packed = self.packed if _takes_gzip(request_headers.get("accept-encoding", "")) else None
        tag = f'"{self.digest}{"" if packed is None else "-gzip"}"'
        headers = {"Cache-Control": self.cache, "ETag": tag, "Vary": "Accept-Encoding"}
        if self.policy is not None:
            headers |= {"Content-Security-Policy": self.policy, "Cross-Origin-Opener-Policy": "same-origin"}
        if status == 200 and _has(request_headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=headers)
        if packed is not None:
            headers["Content-Encoding"] = "gzip"
        return Response(packed or self.body, status, headers, media_type=self.media_type)


@dataclass(frozen=True)
class Export:
    """All files by path, and the prefix of their links. The path of a folder's index ends in a slash."""

    files: Mapping[str, File]
    prefix: str


class Dashboard:
    """Middleware that serves the export's files and leaves everything else to the routes."""

    def __init__(self, app: ASGIApp, *, export: Export) -> None:
        self._app = app
        self._files, self._prefix = export.files, export.prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        path = scope["path"].removeprefix(self._prefix) if scope.get("root_path") else scope["path"]
        answer = self._answer(path or "/", scope["query_string"], Headers(scope=scope))
        await (answer or self._app)(scope, receive, send)

    def _answer(self, path: str, query: bytes, request_headers: Headers) -> Response | None:
        found = self._files.get(path)
        if found is not None:
            return found.answer(request_headers)
        if f"{path}/" in self._files:
            # Only for an existing path, so that nobody can be redirected elsewhere.
            where = f"{self._prefix}{path}/" + (f"?{query.decode('latin-1')}" if query else "")
            return Response(status_code=308, headers={"Location": where, "Cache-Control": _REVALIDATE})
        if path.startswith(_ROUTES) or "text/html" not in request_headers.get("accept", ""):
            return None
        page = self._files.get(_NOT_FOUND)
        return None if page is None else page.answer(request_headers, status=404)


def load(settings: Settings) -> Export | None:
    """The export that this hub serves, or None if the dashboard was not built."""
    for folder in _folders(settings.dashboard_dir):
        index = folder / "index.html"
        try:
            return _read(folder, settings.prefix, index.stat().st_mtime_ns)
        except FileNotFoundError:
            continue  # not built, or being built right now
    return None


def _folders(named: str) -> Iterable[Path]:
    if named == NONE:
        return ()
    return (Path(named),) if named else (_INSTALLED, _CHECKOUT)


@lru_cache(maxsize=4)
def _read(folder: Path, prefix: str, _built_ns: int) -> Export | None:
    """`_built_ns` is part of the cache's key, so that a new build is read again."""
    files: dict[str, File] = {}
    marked = False
    for path in sorted(folder.rglob("*")):
        if path.suffix not in _TYPES or not path.is_file():
            continue
        body = path.read_bytes()
        if path.suffix in _TEXTS:
            marked = marked or MARKER in body
            body = body.replace(MARKER, prefix.encode())
        name = f"/{path.relative_to(folder).as_posix()}"
        file = _file(name, path.suffix, body)
        files[name.removesuffix("index.html")] = files[name] = file
    if prefix and not marked:
        logger.warning("dashboard.unusable: %s was not built for a prefix; see docs/dashboard.md", folder)
        return None
    return Export(files, prefix)


def _file(name: str, suffix: str, body: bytes) -> File:
    cache = _IMMUTABLE if name.startswith("/_next/static/") else _REVALIDATE
    return File(body, _TYPES[suffix], cache, _policy(body) if suffix == ".html" else None)


def _policy(page: bytes) -> str:
    """A policy that allows the hub's own files, and the scripts and styles inside this page by their hashes."""
    inline = {kind: "".join(f" '{_hash(text)}'" for text in _parts(kind, page)) for kind in _INLINE}
    return (
        f"default-src 'none'; script-src 'self'{inline['script']}; style-src 'self'{inline['style']}; "
        "img-src 'self' blob: data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def _parts(kind: str, page: bytes) -> Iterable[bytes]:
    return dict.fromkeys(text for text in _INLINE[kind].findall(page) if text)


def _hash(text: bytes) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}"


def _takes_gzip(accepted: str) -> bool:
    for part in accepted.lower().split(","):
        name, _, quality = part.partition(";")
        if name.strip() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _has(candidates: str, tag: str) -> bool:
    return candidates.strip() == "*" or tag in (part.strip().removeprefix("W/") for part in candidates.split(","))
