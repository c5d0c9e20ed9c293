"""Images from registries: a real one, and others that fail, hang or cheat."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable

import pytest

from computepool.agent.execution.attempt_result import BadJob, StagingFailed
from computepool.agent.images.image import Image
from computepool.agent.images.pulls import Puller
from computepool.protocol.images.names import parse_image
from tests.agent.images.conftest import Kit, MakeKit
from tests.agent.images.image_files import ImageFile, busybox, digest_of, layer, push_index

MB = 1024 * 1024


async def acquire(kit: Kit, name: str) -> Image:
    image = await kit.images.acquire(parse_image(name), note=kit.notes.append)
    kit.images.release(image)
    return image


async def test_an_image_is_fetched_once_and_its_layers_are_shared(registry: str, make_kit: MakeKit) -> None:
    kit = make_kit(registries=(registry,))
    base = busybox(compress="gzip")
    first = ImageFile([base, layer({"etc/a": "1"}, compress="zstd")], {"Env": ["A=1"]})
    second = ImageFile([base, layer({"etc/b": "2"})])
    digests = [image.push(registry, "team/app", tag) for tag, image in (("1", first), ("2", second))]
    image = await acquire(kit, f"{registry}/team/app:1")
    assert image.digest == digests[0]
    assert (image.root().path / "etc/a").read_text() == "1"
    assert kit.notes[0] == f"Image {registry}/team/app:1 is {digests[0]}"
    assert f"Fetching image {registry}/team/app:1: 2 layers, 2 MB" in kit.notes
    other = await acquire(kit, f"{registry}/team/app@{digests[1]}")
    assert (image.root().path / "bin/busybox").samefile(other.root().path / "bin/busybox")
    count = len(kit.notes)
    assert await acquire(kit, f"{registry}/team/app:1@{digests[0]}") == image
    assert len(kit.notes) == count
    assert {entry.digest for entry in kit.images.cached_images()} == set(digests)
    assert await kit.images.evict(digests[0])
    assert not await kit.images.evict(digests[0])
    assert len(list((kit.folder / "cache/images/layers").iterdir())) == 2


async def test_the_cache_is_bounded_and_images_in_use_stay(registry: str, make_kit: MakeKit) -> None:
    kit = make_kit(registries=(registry,), images_bytes_max=3 * MB)
    for number in range(3):
        ImageFile([layer({"data": os.urandom(2 * MB)})]).push(registry, "team/large", str(number))
    held = await kit.images.acquire(parse_image(f"{registry}/team/large:0"), note=kit.notes.append)
    await acquire(kit, f"{registry}/team/large:1")
    last = await acquire(kit, f"{registry}/team/large:2")
    assert {entry.digest for entry in kit.images.cached_images()} == {held.digest, last.digest}
    assert held.root().path.is_dir()
    kit.images.release(held)
    await kit.images.clear()
    assert kit.images.cached_images() == []
    assert list((kit.folder / "cache/images/layers").iterdir()) == []


async def test_an_index_names_the_image_for_this_machine(registry: str, make_kit: MakeKit) -> None:
    kit = make_kit(registries=(registry,))
    own, other = ImageFile([layer({"own": ""})]), ImageFile([layer({"other": ""})], architecture="s390x")
    digest = push_index(registry, "team/many", "1", [other, own])
    image = await acquire(kit, f"{registry}/team/many:1")
    assert (image.digest, sorted(os.listdir(image.root().path))[-2:]) == (digest, ["tmp", "var"])
    assert (image.root().path / "own").is_file()
    push_index(registry, "team/foreign", "1", [other])
    with pytest.raises(BadJob, match="it is made for s390x, and this node is"):
        await acquire(kit, f"{registry}/team/foreign:1")


async def test_unknown_images_are_the_jobs_fault(registry: str, make_kit: MakeKit) -> None:
    kit = make_kit(registries=(registry,))
    for name in ("team/nothing:1", "team/nothing@" + digest_of(b"")):
        with pytest.raises(BadJob, match="there is no image"):
            await acquire(kit, f"{registry}/{name}")


async def test_limits_are_checked_before_anything_is_fetched(registry: str, make_kit: MakeKit) -> None:
    kit = make_kit(registries=(registry,), image_download_bytes_max=MB)
    ImageFile([layer({"data": os.urandom(2 * MB)})]).push(registry, "team/huge", "1")
    with pytest.raises(BadJob, match="it has 3 MB to fetch, and the limit of this node is 1 MB"):
        await acquire(kit, f"{registry}/team/huge:1")


async def test_a_registry_that_the_owner_did_not_name_must_be_public(registry: str, make_kit: MakeKit) -> None:
    kit = make_kit(registries=("*",))
    with pytest.raises(StagingFailed, match="this machine itself"):
        await acquire(kit, f"{registry}/team/app:1")


# ---------------------------------------------------------------- registries of our own
Answer = Callable[[str, dict[str, str]], tuple[int, dict[str, str], bytes] | None]


@contextlib.asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """An HTTP server; None: it never answers."""
    hanging = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                first, *lines = head.strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                found = answer(first.split()[1], headers)
                if found is None:
                    await hanging.wait()
                    break
                status, more, body = found
                fields = {"content-length": str(len(body)), **more}
                text = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
                writer.write(f"HTTP/1.1 {status} X\r\n{text}\r\n".encode() + body)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        hanging.set()
        server.close()
        await server.wait_closed()


def contents(image: ImageFile) -> dict[str, bytes]:
    return {digest_of(data): data for data in (image.manifest, *image.blobs)}


async def test_a_registry_that_hangs_ends_in_a_time_limit(make_kit: MakeKit) -> None:
    image = ImageFile([layer({"a": ""})])
    known = contents(image)

    def without_layers(path: str, _: dict[str, str]) -> tuple[int, dict[str, str], bytes] | None:
        digest = path.rpartition("/")[2]
        return None if digest == digest_of(image.layers[0]) else (200, {}, known[digest])

    for answer in (lambda *_: None, without_layers):
        async with serving(answer) as address:
            kit = make_kit(registries=(address,), image_idle_s=0.3, image_pull_s=60)
            with pytest.raises(StagingFailed, match="could not be fetched"):
                await acquire(kit, f"{address}/a/b@{image.digest}")


@pytest.mark.parametrize(
    "status", [500, pytest.param(503, marks=pytest.mark.soak), pytest.param(429, marks=pytest.mark.soak)]
)
async def test_a_registry_that_fails_is_nobodys_fault(make_kit: MakeKit, status: int) -> None:
    async with serving(lambda *_: (status, {}, b"")) as address:
        with pytest.raises(StagingFailed, match=f"answered {status}"):
            await acquire(make_kit(registries=(address,)), f"{address}/a/b:1")


@pytest.mark.parametrize("tampered", ["manifest", "config", "layer"])
async def test_what_does_not_match_its_digest_is_not_used(make_kit: MakeKit, tampered: str) -> None:
    image = ImageFile([layer({"a": ""})])
    part = {"manifest": image.manifest, "config": image.config_bytes, "layer": image.layers[0]}[tampered]
    known = {**contents(image), digest_of(part): part[:-1] + b"x"}
    async with serving(lambda path, _: (200, {}, known[path.rpartition("/")[2]])) as address:
        kit = make_kit(registries=(address,))
        with pytest.raises(StagingFailed, match="sent something else"):
            await acquire(kit, f"{address}/a/b@{image.digest}")
    assert list((kit.folder / "cache/images/roots").iterdir()) == []


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"layers": 3}', b'{"config":{"digest":"../x","size":1}}', b"[" * 100_000]
)
async def test_a_manifest_that_is_none(make_kit: MakeKit, body: bytes) -> None:
    async with serving(lambda *_: (200, {}, body)) as address:
        with pytest.raises(BadJob, match="cannot be used: its manifest"):
            await acquire(make_kit(registries=(address,)), f"{address}/a/b@{digest_of(body)}")


async def test_an_endless_manifest_is_refused(make_kit: MakeKit) -> None:
    async with serving(lambda *_: (200, {}, b" " * (5 * MB))) as address:
        with pytest.raises(BadJob, match="more than"):
            await acquire(make_kit(registries=(address,)), f"{address}/a/b:1")


async def test_redirects_lead_to_public_hosts_only(make_kit: MakeKit) -> None:
    """A registry may send us to the host of its files, but not into the owner's network."""
    for place in ("http://127.0.0.2:80/", "https://10.0.0.1/", "ftp://files.example/", "file:///etc/passwd"):
        async with serving(lambda *_, to=place: (307, {"location": to}, b"")) as address:
            with pytest.raises(StagingFailed, match="does not answer"):
                await acquire(make_kit(registries=(address,)), f"{address}/a/b:1")


async def test_tokens_and_credentials(make_kit: MakeKit) -> None:
    """The registry gets a token, and the token service the credentials; nobody else gets either."""
    image = ImageFile([layer({"a": ""})])
    known, seen = contents(image), []

    def answer(path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        seen.append((path.partition("?")[0], headers.get("authorization", "")))
        if path.startswith("/token"):
            return 200, {}, json.dumps({"token": "secret"}).encode()
        if headers.get("authorization") != "Bearer secret":
            challenge = f'Bearer realm="http://{headers["host"]}/token",service="a, b",scope="repository:a/b:pull"'
            return 401, {"www-authenticate": challenge}, b""
        return 200, {}, known[path.rpartition("/")[2]]

    async with serving(answer) as address:
        kit = make_kit(registries=(address,))
        name = parse_image(f"{address}/a/b@{image.digest}")
        puller = Puller(name, kit.images.egress, limits=kit.images.limits, architecture="amd64", registries=(address,))
        async with puller.open(("me", "pass")) as client:
            assert await client.manifest(image.digest) == image.manifest
        basic = f"Basic {base64.b64encode(b'me:pass').decode()}"
        manifest = f"/v2/a/b/manifests/{image.digest}"
        assert seen == [(manifest, basic), ("/token", basic), (manifest, "Bearer secret")]
    async with serving(lambda *_: (401, {"www-authenticate": "Basic realm=x"}, b"")) as address:
        with pytest.raises(BadJob, match="or it is private"):
            await acquire(make_kit(registries=(address,)), f"{address}/a/b:1")


async def test_what_a_login_fetched_is_kept_from_jobs_without_it(make_kit: MakeKit) -> None:
    image = ImageFile([layer({"a": "private"})])
    known = contents(image)
    known["1"] = known[image.digest]
    allowed = f"Basic {base64.b64encode(b'me:pass').decode()}"

    def answer(path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        if headers.get("authorization") != allowed:
            return 401, {"www-authenticate": "Basic realm=x"}, b""
        return 200, {"docker-content-digest": image.digest}, known[path.rpartition("/")[2]]

    async with serving(answer) as address:
        kit = make_kit(registries=(address,))
        names = [parse_image(f"{address}/a/b{end}") for end in (":1", f"@{image.digest}")]
        for name in names:
            found = await kit.images.acquire(name, note=kit.notes.append, login=("me", "pass"))
            assert (found.root().path / "a").read_text() == "private"
        for name in names:
            for login in (None, ("me", "guess")):
                with pytest.raises(BadJob, match="or it is private"):
                    await kit.images.acquire(name, note=kit.notes.append, login=login)
