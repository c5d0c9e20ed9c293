"""HTTP requests of jobs to the proxy: parsed strictly, refused with a message."""

from __future__ import annotations

from dataclasses import dataclass

from computepool.core.network import clean_host

_CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"
#: Headers for the proxy only, or set by the proxy itself.
_NOT_PASSED_ON = frozenset(
    b"connection host keep-alive proxy-authorization proxy-connection te upgrade".split()
)
_DEFAULT_PORT = 80


class RequestRefused(Exception):
    """The reply to a request that is refused. The sentence is plain ASCII."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence.encode("ascii", "replace").decode().replace("\r", "?").replace("\n", "?")

    def response(self) -> bytes:
        body = f"{self.sentence}\n".encode()
        # In the first line too: of a CONNECT that is all most programs show.
        head = (
            f"HTTP/1.1 {self.status} {self.sentence}\r\nContent-Type: text/plain\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body


@dataclass(frozen=True, slots=True)
class Ask:
    host: str
    port: int
    reply: bytes = b""  #: to the job, once connected
    head: bytes = b""  #: to the host


def parse_head(head: bytes) -> Ask:
    """Parse a request head, which ends with an empty line. Raises RequestRefused."""
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    words = first.split(b" ")
    plain = len(words) == 3 and all(byte > 0x20 for byte in words[1])
    if not plain or words[2] not in (b"HTTP/1.1", b"HTTP/1.0") or not words[0].isalpha():
        raise RequestRefused(400, "This is not an HTTP proxy request.")
    if words[0] == b"CONNECT":
        host, port = _authority(words[1], default=None)
        return Ask(host, port, reply=_CONNECTED)
    if not words[1].lower().startswith(b"http://"):
        raise RequestRefused(400, "Ask for http://host/path, or CONNECT host:port.")
    rest = words[1][len(b"http://") :]
    end = min((at for at in map(rest.find, (b"/", b"?", b"#")) if at >= 0), default=len(rest))
    host, port = _authority(rest[:end], default=_DEFAULT_PORT)
    path = rest[end:] if rest[end : end + 1] == b"/" else b"/" + rest[end:]
    return Ask(host, port, head=_origin_head(words[0], path, lines, authority=rest[:end]))


def _authority(text: bytes, *, default: int | None) -> tuple[str, int]:
    host, separator, port = text.rpartition(b":")
    if default is not None and (not separator or port.endswith(b"]")):
        host, port = text, str(default).encode()
    try:
        if not port.isdigit() or not 0 < int(port[:6]) <= 65_535:
            raise ValueError
        return clean_host(host.decode("ascii")), int(port)
    except ValueError:
        raise RequestRefused(400, "The request does not name a host and port.") from None


def _origin_head(method: bytes, path: bytes, lines: list[bytes], *, authority: bytes) -> bytes:
    kept = [b"%s %s HTTP/1.1" % (method, path), b"Host: %s" % authority, b"Connection: close"]
    for line in lines:
        name, separator, _ = line.partition(b":")
        if not separator or not name or name != name.strip() or b"\n" in line or b"\r" in line:
            raise RequestRefused(400, "A header of the request is malformed.")
        if name.lower() not in _NOT_PASSED_ON:
            kept.append(line)
    return b"\r\n".join(kept) + b"\r\n\r\n"
