"""Transfers over real connections that break, and of files larger than the hub's memory."""

from __future__ import annotations

import hashlib
import socket
import struct
from collections.abc import Iterator

import httpx2
import pytest

from tests.hub.serving import ServedHub, serving

pytestmark = pytest.mark.process

MB = 1024 * 1024
BLOCK = bytes(range(256)) * (MB // 256)
GROWTH_MAX_MB = 64


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHub]:
    with serving(tmp_path_factory.mktemp("hub")) as running:
        yield running


def blocks(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield number.to_bytes(8, "big") + BLOCK[8:]


@pytest.mark.soak
def test_three_hundred_megabytes_stream_through_with_flat_memory(hub: ServedHub) -> None:
    count, hasher = 300, hashlib.sha256()
    for block in blocks(count):
        hasher.update(block)
    digest = hasher.hexdigest()
    with hub.client() as client:
        client.get("/me").raise_for_status()
        hub.forget_peak()
        before_mb = hub.peak_mb()
        headers = {"Content-Length": str(count * MB)}
        sent = client.put(f"/artifacts/{digest}", params={"size": count * MB}, content=blocks(count), headers=headers)
        assert sent.json() == {"digest": digest, "offset": count * MB, "complete": True}
        up_mb = hub.peak_mb() - before_mb
        back = hashlib.sha256()
        with client.stream("GET", f"/artifacts/{digest}") as answer:
            for chunk in answer.iter_raw(MB):
                back.update(chunk)
        down_mb = hub.peak_mb() - before_mb
    assert back.hexdigest() == digest
    assert up_mb < GROWTH_MAX_MB, f"{up_mb:.0f} MB to receive"
    assert down_mb < GROWTH_MAX_MB, f"{down_mb:.0f} MB to receive and send"


@pytest.mark.soak
@pytest.mark.parametrize("sent", [1, 700_000, 5 * MB + 17])
def test_an_upload_goes_on_where_the_connection_broke(hub: ServedHub, sent: int) -> None:
    data = b"".join(blocks(8)) + sent.to_bytes(8, "big")
    digest = hashlib.sha256(data).hexdigest()
    with hub.connect() as line:
        line.sendall(_head(hub, digest, len(data)) + data[:sent])
    with hub.client() as client:
        resumed_at = _finish(client, data)
        assert sent - MB < resumed_at <= sent, "what had arrived is kept"
        assert client.get(f"/artifacts/{digest}").content == data


@pytest.mark.soak
def test_an_upload_survives_a_dozen_resets(hub: ServedHub) -> None:
    data = b"".join(blocks(6))
    digest = hashlib.sha256(data).hexdigest()
    with hub.client() as client:
        for _ in range(12):
            offset = client.get(f"/artifacts/{digest}/upload").json()["offset"]
            with hub.connect() as line:
                line.sendall(_head(hub, digest, len(data), offset) + data[offset : offset + 300_000])
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        _finish(client, data)
        assert client.get(f"/artifacts/{digest}").content == data


def _finish(client: httpx2.Client, data: bytes) -> int:
    """Like a client, ask where to resume, and again while the hub is still busy with the broken connection."""
    digest = hashlib.sha256(data).hexdigest()
    for _ in range(1_000):
        offset: int = client.get(f"/artifacts/{digest}/upload").json()["offset"]
        params = {"size": len(data), "offset": offset}
        answer = client.put(f"/artifacts/{digest}", params=params, content=data[offset:])
        if answer.status_code == 200:
            assert answer.json()["complete"]
            return offset
        assert answer.status_code == 409, answer.text
    raise AssertionError("the upload never ends")


def _head(hub: ServedHub, digest: str, size: int, offset: int = 0) -> bytes:
    head = f"PUT /api/v1/artifacts/{digest}?size={size}&offset={offset} HTTP/1.1\r\nHost: hub\r\n"
    return (head + f"Authorization: Bearer {hub.key}\r\nContent-Length: {size - offset}\r\n\r\n").encode()


def test_a_download_resumes_by_range(hub: ServedHub) -> None:
    data = b"".join(blocks(3))
    digest = hashlib.sha256(data).hexdigest()
    with hub.client() as client:
        client.put(f"/artifacts/{digest}", params={"size": len(data)}, content=data).raise_for_status()
        part = b""
        with client.stream("GET", f"/artifacts/{digest}") as answer:
            for chunk in answer.iter_raw(64 * 1024):
                part += chunk
                if len(part) > MB:
                    break
        rest = client.get(f"/artifacts/{digest}", headers={"Range": f"bytes={len(part)}-"})
        assert rest.status_code == 206
        assert part + rest.content == data


def test_an_oversized_body_is_refused_without_being_read(hub: ServedHub) -> None:
    with hub.connect() as line:
        head = "POST /api/v1/jobs HTTP/1.1\r\nHost: hub\r\nContent-Type: application/json\r\n"
        head += f"Authorization: Bearer {hub.key}\r\nContent-Length: {10**12}\r\n\r\n"
        line.sendall(head.encode())
        assert line.recv(65_536).startswith(b"HTTP/1.1 413")
