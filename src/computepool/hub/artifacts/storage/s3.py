"""A blob store at any S3-compatible service.

An upload is a chain of small objects under `uploads/`, each named by its offset, its length and a random part. So the
service itself records how far an upload is, and any hub can resume it after any crash. When it is complete, the service
copies the pieces into one object under `artifacts/`, and the bytes do not pass through the hub again.
"""

from __future__ import annotations

import hashlib
import io
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from computepool.core.errors import BadRequest, Conflict, Unavailable
from computepool.hub.artifacts.storage.base import (
    Reading,
    RunningHashes,
    Stored,
    check_offset,
    mismatch,
    owner_key,
    place_of,
)
from computepool.hub.settings import Settings

#: The least size of every part of a multipart upload except the last.
PART_MIN_BYTES = 5 * 1024 * 1024
#: The most pieces of an upload: the service accepts 10 000 parts.
PIECES_MAX = 9_000
_DELETE_MAX = 1_000
_COPIES_AT_A_TIME = 4
_CONNECTIONS_MAX = 32
_CLAIM = "pool"
_PIECE = re.compile(r"^([0-9a-f]{16})-([0-9a-f]+)-[0-9a-f]{16}$")
_RETRY_S = 2
_MISSING = frozenset({"404", "NoSuchKey", "NotFound", "NoSuchUpload"})


@dataclass(frozen=True, slots=True, order=True)
class _Piece:
    offset: int
    name: str
    size: int


class S3Blobs:
    def __init__(self, bucket: str, prefix: str, settings: Settings) -> None:
        """`prefix` is empty or ends with a slash. Settings that are empty are left to boto3."""
        self._bucket, self._prefix, self.part_bytes = bucket, prefix, settings.s3_part_bytes
        self.hashes = RunningHashes()
        try:
            self._client = self._connect(settings)
        except (BotoCoreError, ValueError) as error:  # the endpoint is no address, or the region is unknown
            raise Unavailable(f"The artifact store cannot be used: {error}") from error

    def _connect(self, settings: Settings) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=settings.s3_endpoint or None,
            region_name=settings.s3_region or None,
            aws_access_key_id=settings.s3_access_key_id or None,
            aws_secret_access_key=settings.s3_secret_access_key.get_secret_value() or None,
            config=Config(
                signature_version="s3v4",
                max_pool_connections=_CONNECTIONS_MAX,
                retries={"max_attempts": 4, "mode": "standard"},
                connect_timeout=10,
                read_timeout=60,
                # The signature covers the bytes, so that none can be changed on the way. Not every service knows the
                # newer checksums.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                s3={"payload_signing_enabled": True},
            ),
        )

    def claim(self, pool: str) -> None:
        known = self._get(self._key(_CLAIM))
        if known is None:
            self.put(self._key(_CLAIM), pool.encode())
        elif known.decode(errors="replace") != pool:
            raise Conflict(
                f"s3://{self._bucket}/{self._prefix} holds the artifacts of another pool; choose another prefix."
            )

    def _key(self, name: str) -> str:
        return self._prefix + name

    def _place_key(self, place: str) -> str:
        return self._key(f"artifacts/{place}")

    # uploads

    def uploaded_bytes(self, digest: str, owner: str) -> int:
        return _end(self._chain(digest, owner))

    def upload_sizes(self, owner: str) -> dict[str, int]:
        prefix, found = self._key(f"uploads/{owner_key(owner)}/"), Counter[str]()
        with _service_errors():
            for entry in self._objects(prefix):
                found[entry["Key"].removeprefix(prefix).partition("/")[0]] += entry["Size"]
        return found

    def open_upload(self, digest: str, owner: str, *, offset: int) -> S3Upload:
        chain = self._chain(digest, owner)
        check_offset(_end(chain), offset)
        return S3Upload(self, digest, owner, chain=chain)

    def drop_upload(self, digest: str, owner: str) -> None:
        folder = self.folder(digest, owner)
        with _service_errors():
            self.delete([entry["Key"] for entry in self._objects(folder)])

    def folder(self, digest: str, owner: str) -> str:
        return self._key(f"uploads/{owner_key(owner)}/{digest}/")

    def _chain(self, digest: str, owner: str) -> list[_Piece]:
        """Of pieces that two requests added at the same offset, the first by name counts, and the other is left over."""
        folder = self.folder(digest, owner)
        chain: list[_Piece] = []
        with _service_errors():
            found = [_piece(entry["Key"].removeprefix(folder)) for entry in self._objects(folder)]
        for piece in sorted(piece for piece in found if piece is not None):
            if piece.offset == _end(chain):
                chain.append(piece)
        return chain

    def drop_stale_uploads(self, *, before_s: float) -> int:
        with _service_errors():
            old = [
                entry["Key"]
                for entry in self._objects(self._key("uploads/"))
                if entry["LastModified"].timestamp() < before_s
            ]
            self.delete(old)
            return len(old) + self._abort_stale(before_s)

    def _abort_stale(self, before_s: float) -> int:
        """Remove parts left by a hub that died while the service copied; lists of objects do not show them."""
        pages = self._client.get_paginator("list_multipart_uploads").paginate(
            Bucket=self._bucket, Prefix=self._key("artifacts/")
        )
        stale = [one for page in pages for one in page.get("Uploads", ()) if one["Initiated"].timestamp() < before_s]
        for one in stale:
            self._client.abort_multipart_upload(Bucket=self._bucket, Key=one["Key"], UploadId=one["UploadId"])
        return len(stale)

    # places

    def size(self, place: str) -> int | None:
        found = self._find(self._client.head_object, Key=self._place_key(place))
        return None if found is None else int(found["ContentLength"])

    def read(self, place: str, *, start: int, length: int) -> Reading:
        if length == 0:  # which no range can express
            return io.BytesIO()
        span = f"bytes={start}-{start + length - 1}"
        found = self._find(self._client.get_object, Key=self._place_key(place), Range=span)
        if found is None:
            raise FileNotFoundError(place)
        return S3Reading(found["Body"])

    def erase(self, place: str) -> None:
        with _service_errors():
            self._client.delete_object(Bucket=self._bucket, Key=self._place_key(place))

    def walk(self, *, after: str, limit: int) -> list[Stored]:
        folder = self._place_key("")
        begin = {"StartAfter": self._place_key(after)} if after else {}
        with _service_errors():
            return [
                Stored(entry["Key"].removeprefix(folder), entry["Size"], entry["LastModified"].timestamp())
                for entry in islice(self._objects(folder, **begin), limit)
            ]

    # the service

    def _objects(self, prefix: str, **begin: str) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix, **begin)
        for page in pages:
            yield from page.get("Contents", ())

    def _find(self, ask: Callable[..., dict[str, Any]], **of: str) -> dict[str, Any] | None:
        """None: nothing is there."""
        with _service_errors():
            try:
                return ask(Bucket=self._bucket, **of)
            except ClientError as error:
                if str(error.response.get("Error", {}).get("Code")) in _MISSING:
                    return None
                raise

    def _get(self, key: str) -> bytes | None:
        with _service_errors():
            found = self._find(self._client.get_object, Key=key)
            return None if found is None else bytes(found["Body"].read())

    def get_piece(self, key: str) -> bytes:
        data = self._get(key)
        if data is None:
            raise Conflict("The upload was finished or dropped concurrently; check its state.", field="offset")
        return data

    def put(self, key: str, data: bytes | bytearray) -> None:
        with _service_errors():
            self._client.put_object(Bucket=self._bucket, Key=key, Body=bytes(data))

    def delete(self, keys: Sequence[str]) -> None:
        with _service_errors():
            for start in range(0, len(keys), _DELETE_MAX):
                listed = [{"Key": key} for key in keys[start : start + _DELETE_MAX]]
                self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": listed, "Quiet": True})

    def join(self, keys: Sequence[tuple[str, int]], place: str) -> None:
        """Copy the pieces into one object inside the service; those too small for a part pass through the hub."""
        target = {"Bucket": self._bucket, "Key": self._place_key(place)}
        with _service_errors():
            if sum(size for _, size in keys) <= self.part_bytes:
                self._client.put_object(**target, Body=b"".join(self.get_piece(key) for key, _ in keys))
                return
            begun = {**target, "UploadId": self._client.create_multipart_upload(**target)["UploadId"]}
            try:
                parts = list(self._send_parts(begun, list(_parts(keys))))
                self._client.complete_multipart_upload(**begun, MultipartUpload={"Parts": parts})
            except BaseException:
                self._client.abort_multipart_upload(**begun)
                raise

    def _send_parts(
        self, begun: dict[str, str], parts: Sequence[Sequence[tuple[str, int]]]
    ) -> Iterator[dict[str, Any]]:
        def send(number: int) -> dict[str, Any]:
            pieces = parts[number - 1]
            if len(pieces) == 1:
                source = {"Bucket": self._bucket, "Key": pieces[0][0]}
                done = self._client.upload_part_copy(**begun, PartNumber=number, CopySource=source)["CopyPartResult"]
            else:
                body = b"".join(self.get_piece(key) for key, _ in pieces)
                done = self._client.upload_part(**begun, PartNumber=number, Body=body)
            return {"PartNumber": number, "ETag": done["ETag"]}

        with ThreadPoolExecutor(_COPIES_AT_A_TIME) as threads:
            yield from threads.map(send, range(1, len(parts) + 1))


class S3Upload:
    def __init__(self, blobs: S3Blobs, digest: str, owner: str, *, chain: list[_Piece]) -> None:
        self.chunk_bytes = blobs.part_bytes
        self._blobs, self._digest, self._owner, self._chain = blobs, digest, owner, chain
        self._folder = blobs.folder(digest, owner)
        self._tag = self._folder  # identifies these very pieces in this order
        for piece in chain:
            self._tag = _tag(self._tag, piece.name)

    def append(self, data: bytes | bytearray) -> int:
        offset = _end(self._chain)
        if not data:
            return offset
        if len(self._chain) >= PIECES_MAX:
            self._blobs.drop_upload(self._digest, self._owner)
            raise BadRequest("The upload came in too many small pieces and was dropped; start again.", field="size")
        name = f"{offset:016x}-{len(data):x}-{secrets.token_hex(8)}"
        self._blobs.put(self._folder + name, data)
        hashes = self._blobs.hashes
        hasher, done = hashes.take(self._tag)
        self._chain.append(_Piece(offset, name, len(data)))
        self._tag = _tag(self._tag, name)
        if done == offset:
            hasher.update(data)
            hashes.put(self._tag, hasher, offset + len(data))
        return offset + len(data)

    def finish(self, size: int) -> str:
        length = _end(self._chain)
        actual = self._hash()
        if actual != self._digest or length != size:
            self._blobs.drop_upload(self._digest, self._owner)
            raise mismatch(length, actual, size=size, digest=self._digest)
        place = place_of(self._digest, secrets.token_hex(8))
        self._blobs.join([(self._folder + piece.name, piece.size) for piece in self._chain], place)
        if self._blobs.size(place) != size:
            self._blobs.erase(place)
            raise Unavailable(
                "The artifact store did not store all of the artifact; try again.", retry_after_s=_RETRY_S
            )
        self._blobs.drop_upload(self._digest, self._owner)
        return place

    def _hash(self) -> str:
        hasher, done = self._blobs.hashes.take(self._tag)
        for piece in self._chain:
            if piece.offset >= done:
                hasher.update(self._blobs.get_piece(self._folder + piece.name))
        return str(hasher.hexdigest())

    def close(self) -> None:
        return None


class S3Reading:
    def __init__(self, body: Any) -> None:
        self._body = body

    def read(self, size: int, /) -> bytes:
        with _service_errors():
            data: bytes = self._body.read(size)
            return data

    def close(self) -> None:
        self._body.close()


def _parts(keys: Sequence[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    """Neighbours are joined until they are large enough for a part."""
    gathered: list[tuple[str, int]] = []
    for key in keys:
        gathered.append(key)
        if sum(size for _, size in gathered) >= PART_MIN_BYTES:
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def _piece(name: str) -> _Piece | None:
    found = _PIECE.match(name)
    return None if found is None else _Piece(int(found[1], 16), name, int(found[2], 16))


def _end(chain: list[_Piece]) -> int:
    return chain[-1].offset + chain[-1].size if chain else 0


def _tag(before: str, name: str) -> str:
    return hashlib.sha256(f"{before}\n{name}".encode()).hexdigest()


@contextmanager
def _service_errors() -> Iterator[None]:
    """Errors of the service are temporary failures of the store."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise Unavailable(f"The artifact store failed: {error}", retry_after_s=_RETRY_S) from error
