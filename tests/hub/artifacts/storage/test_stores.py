"""Every blob store: uploads grow at their end, are verified before they get a place, and leave nothing behind."""

from __future__ import annotations

import hashlib
import random
import threading
import time

import pytest

from computepool.core.errors import BadRequest, Conflict
from computepool.hub.artifacts.storage.base import Blobs, owner_key
from tests.hub.artifacts.storage.conftest import MakeBlobs

MB = 1024 * 1024


def some_bytes(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def send(blobs: Blobs, data: bytes, *, owner: str = "sam", step: int = 5 * MB, whole: bytes | None = None) -> str:
    """Upload in separate requests from wherever the upload stands. Returns the place."""
    whole = data if whole is None else whole
    digest = digest_of(whole)
    while True:
        offset = blobs.uploaded_bytes(digest, owner)
        upload = blobs.open_upload(digest, owner, offset=offset)
        try:
            offset = upload.append(data[offset : offset + step])
            if offset == len(data):
                return upload.finish(len(whole))
        finally:
            upload.close()


def read(blobs: Blobs, place: str, start: int, length: int) -> bytes:
    reading = blobs.read(place, start=start, length=length)
    try:
        found = b""
        while len(found) < length and (block := reading.read(min(MB, length - len(found)))):
            found += block
        return found
    finally:
        reading.close()


def places(blobs: Blobs) -> list[str]:
    return [one.place for one in blobs.walk(after="", limit=1000)]


@pytest.mark.parametrize(
    ("size", "step"), [(0, 1), (1, 1), (1000, 250), (5 * MB, 5 * MB), (16 * MB + 17, 5 * MB), (6 * MB, 700_000)]
)
def test_bytes_come_in_pieces_and_are_read_back_in_part(blobs: Blobs, size: int, step: int) -> None:
    data = some_bytes(size)
    digest = digest_of(data)
    place = send(blobs, data, step=step)
    assert blobs.size(place) == size
    assert read(blobs, place, 0, size) == data
    assert read(blobs, place, size // 3, size // 2) == data[size // 3 : size // 3 + size // 2]
    assert [(one.place, one.size) for one in blobs.walk(after="", limit=9)] == [(place, size)]
    assert (blobs.uploaded_bytes(digest, "sam"), blobs.upload_sizes("sam")) == (0, {}), "nothing is left of the upload"
    blobs.erase(place)
    blobs.erase(place)
    assert blobs.size(place) is None
    assert places(blobs) == []
    with pytest.raises(FileNotFoundError):
        blobs.read(place, start=0, length=1)


def test_an_upload_goes_on_at_another_hub_and_after_a_restart(make: MakeBlobs) -> None:
    data = some_bytes(11 * MB)
    digest = digest_of(data)
    for start, end in ((0, 1 * MB), (1 * MB, 7 * MB), (7 * MB, 7 * MB + 3), (7 * MB + 3, 11 * MB)):
        upload = make().open_upload(digest, "sam", offset=start)  # each has never seen what came before
        assert upload.append(data[start:end]) == end
        upload.close()
        assert make().uploaded_bytes(digest, "sam") == end
    upload = make().open_upload(digest, "sam", offset=len(data))
    place = upload.finish(len(data))
    upload.close()
    assert read(make(), place, 0, len(data)) == data


def test_a_wrong_offset_is_refused_with_the_right_one(blobs: Blobs) -> None:
    digest = digest_of(b"whatever")
    blobs.open_upload(digest, "sam", offset=0).append(b"what")
    for offset in (0, 3, 5):
        with pytest.raises(Conflict, match="at byte 4"):
            blobs.open_upload(digest, "sam", offset=offset)
    assert blobs.uploaded_bytes(digest, "olga") == 0, "an upload is its owner's"


@pytest.mark.parametrize("wrong", ["bytes", "size"])
def test_a_wrong_upload_never_gets_a_place(make: MakeBlobs, wrong: str) -> None:
    data = some_bytes(6 * MB)
    digest = digest_of(data)
    upload = make().open_upload(digest, "sam", offset=0)
    upload.append(b"x" * len(data) if wrong == "bytes" else data)
    with pytest.raises(BadRequest, match="was dropped"):
        upload.finish(len(data) + (wrong == "size"))
    assert places(make()) == []
    assert make().uploaded_bytes(digest, "sam") == 0
    assert read(make(), send(make(), data), 0, len(data)) == data


def test_no_two_hubs_can_be_played_against_each_other(make: MakeBlobs) -> None:
    """One hub has hashed good bytes, which are replaced by bad ones through the other; then the first must not finish."""
    good = some_bytes(6 * MB)
    digest, bad = digest_of(good), bytes(MB)
    one, other = make(), make()
    one.open_upload(digest, "eve", offset=0).append(good[:MB])
    other.drop_upload(digest, "eve")
    other.open_upload(digest, "eve", offset=0).append(bad)
    upload = one.open_upload(digest, "eve", offset=MB)
    upload.append(good[MB:])
    with pytest.raises(BadRequest):
        upload.finish(len(good))
    assert places(one) == []


@pytest.mark.soak
def test_two_requests_at_once_spoil_nothing(make: MakeBlobs) -> None:
    """Both begin at the same offset with different bytes; whoever finishes gets what was hashed, or is refused."""
    good = some_bytes(100_000)
    digest = digest_of(good)
    found: list[str] = []

    def race(data: bytes) -> None:
        blobs = make()
        for _ in range(15):
            try:
                offset = blobs.uploaded_bytes(digest, "eve")
                upload = blobs.open_upload(digest, "eve", offset=offset)
                if upload.append(data[offset : offset + 30_000]) == len(data):
                    found.append(upload.finish(len(data)))
                upload.close()
            except (Conflict, BadRequest):
                continue

    racers = [threading.Thread(target=race, args=(data,)) for data in (good, bytes(len(good)), good)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(60)
    for place in places(make()):
        assert digest_of(read(make(), place, 0, len(good))) == digest
    assert set(found) == set(places(make()))


def test_equal_bytes_of_two_owners_get_places_of_their_own(blobs: Blobs) -> None:
    data = some_bytes(1000)
    first, second = send(blobs, data, owner="sam"), send(blobs, data, owner="olga")
    assert first != second
    blobs.erase(first)
    assert read(blobs, second, 0, len(data)) == data


def test_what_is_on_its_way_is_counted_by_owner(blobs: Blobs) -> None:
    for number in (1, 2, 3):
        blobs.open_upload(digest_of(b"%d" % number), "sam", offset=0).append(b"x" * number * 100)
    blobs.open_upload(digest_of(b"1"), "olga", offset=0).append(b"x" * 7)
    assert sum(blobs.upload_sizes("sam").values()) == 600
    assert blobs.upload_sizes("sam")[digest_of(b"3")] == 300
    assert blobs.upload_sizes("kim") == {}
    blobs.drop_upload(digest_of(b"2"), "sam")
    assert sum(blobs.upload_sizes("sam").values()) == 400


def test_uploads_that_nobody_goes_on_with_are_dropped(blobs: Blobs) -> None:
    digest = digest_of(b"abc")
    blobs.open_upload(digest, "sam", offset=0).append(b"ab")
    place = send(blobs, b"whole")
    blobs.drop_stale_uploads(before_s=time.time() - 60)  # noqa: TID251
    assert blobs.uploaded_bytes(digest, "sam") == 2
    blobs.drop_stale_uploads(before_s=time.time() + 60)  # noqa: TID251
    assert blobs.uploaded_bytes(digest, "sam") == 0
    assert places(blobs) == [place], "what is whole has nothing to do with it"


def test_places_are_walked_in_pages(blobs: Blobs) -> None:
    sent = sorted(send(blobs, b"%d" % number) for number in range(7))
    found, after = [], ""
    while page := blobs.walk(after=after, limit=3):
        found += [one.place for one in page]
        after = found[-1]
    assert found == sent


def test_a_store_belongs_to_one_pool(make: MakeBlobs) -> None:
    make().claim("pool one")
    make().claim("pool one")
    with pytest.raises(Conflict, match="another pool"):
        make().claim("pool two")
    assert places(make()) == [], "the mark is no artifact"


def test_an_owners_name_cannot_be_a_path() -> None:
    assert owner_key("../../etc") != owner_key("../../etd")
    assert owner_key("../../etc").isalnum()
