"""The user's sealing keys: creation, storage, and decryption of sealed results.

The key file is next to the config file, readable only by its owner. Jobs are sealed to its first key; older keys stay to
open older results. A passphrase, if there is one, comes from COMPUTEPOOL_SEAL_PASSPHRASE or from the CLI's prompt.
"""

from __future__ import annotations

import json
import os
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from computepool.core.errors import BadRequest, ComputePoolError
from computepool.protocol import sealing
from computepool.protocol.sealing import About, SealError
from computepool.sdk.client.config import config_path, open_private, replaceable, write_private

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    from computepool.protocol.jobs.groups import GroupItem
    from computepool.protocol.jobs.views import AttemptView, JobDetail, JobResult, JobView

    #: Models with the error of a job.
    View = TypeVar("View", JobView, JobDetail, JobResult, AttemptView, GroupItem)

PASSPHRASE_ENV = "COMPUTEPOOL_SEAL_PASSPHRASE"
_FILE = "seal.json"
_COST = {"n": 2**15, "r": 8, "p": 1}
_HOW = "create one with `pool seal init`, or import yours with `pool seal import FILE`"

#: Prompts for the passphrase; set by the CLI.
ask_passphrase: list[Callable[[], str]] = []


def fingerprint(public: str) -> str:
    return sealing.key_id(sealing.public_bytes(public)).hex()


@dataclass(frozen=True, slots=True)
class StoredKey:
    public: str
    private: str  #: base64; with a passphrase: salt, nonce and ciphertext
    locked: bool = False

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.public)


@dataclass(frozen=True, slots=True)
class KeyFile:
    keys: tuple[StoredKey, ...] = ()
    always: bool = False  #: seal jobs by default


def key_path() -> Path:
    return config_path().with_name(_FILE)


def load() -> KeyFile:
    path = key_path()
    try:
        return _parse(json.loads(path.read_text()))
    except FileNotFoundError:
        return KeyFile()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f"Cannot read the sealing keys in {path}: {error}.") from error


def _parse(stored: dict[str, Any]) -> KeyFile:
    keys = tuple(StoredKey(key["public"], key["private"], bool(key.get("locked"))) for key in stored["keys"])
    for key in keys:
        sealing.public_bytes(key.public)
    return KeyFile(keys, bool(stored.get("always")))


def as_json(file: KeyFile) -> str:
    return json.dumps(asdict(file), indent=2) + "\n"


def save(file: KeyFile) -> None:
    write_private(key_path(), as_json(file))


def init(*, passphrase: str = "", replace_current: bool = False, always: bool | None = None) -> StoredKey:
    """Create a key pair. With `replace_current`, an existing key is kept only to open older files."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    file = load()
    if file.keys and not replace_current:
        raise BadRequest(f"There is already a key ({file.keys[0].fingerprint}). Pass --replace to create a new one.")
    made = _store_key(X25519PrivateKey.generate(), passphrase)
    save(replace(file, keys=(made, *file.keys), always=file.always if always is None else always))
    return made


def add(text: str) -> KeyFile:
    """Import exported keys; an existing key stays the current one."""
    try:
        other = _parse(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f"This file does not contain exported sealing keys: {error}.") from error
    file = load()
    known = {key.public for key in file.keys}
    joined = replace(file, keys=(*file.keys, *(key for key in other.keys if key.public not in known)))
    save(joined)
    return joined


def set_always(always: bool) -> None:
    file = load()
    if always and not file.keys:
        raise BadRequest(f"There is no key to seal to: {_HOW}.")
    save(replace(file, always=always))


def recipient(seal: bool | str | None) -> str | None:
    """The public key for the option `seal=…`: yours, the given one, or None."""
    if isinstance(seal, str):
        try:
            sealing.public_bytes(seal)
        except ValueError as error:
            raise BadRequest(f"seal: {error}.", field="seal") from None
        return seal
    if seal is False:
        return None
    file = load()
    if seal is None and not file.always:
        return None
    if not file.keys:
        raise BadRequest(f"seal: there is no key to seal to: {_HOW}.", field="seal")
    return file.keys[0].public


class CannotOpen(ComputePoolError):
    """The data is sealed and cannot be opened here."""

    code = "sealed"


def find_key(key_id: bytes) -> X25519PrivateKey:
    for key in load().keys:
        if key.fingerprint == key_id.hex():
            return _private(key)
    raise SealError(
        f"The data is sealed to the key {key_id.hex()}, which is not on this machine. Import it: pool seal import FILE"
    )


def open_file(source: Path, target: Path, *, about: About | None = None) -> About:
    """Write `target` atomically. Returns what the file was sealed as; raises CannotOpen if `about` is given and differs."""
    target = replaceable(target)
    part = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.opening")
    try:
        with source.open("rb") as sealed, os.fdopen(open_private(part), "wb") as plain:
            view = sealing.unseal(sealed.read, plain.write, find_key=find_key, about=about)
        part.replace(target)
        return view
    except SealError as error:
        raise CannotOpen(f"{source.name}: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def open_bytes(data: bytes, *, about: About | None = None) -> bytes:
    """The decrypted data; unsealed data is returned unchanged."""
    if not sealing.is_sealed(data):
        return data
    try:
        return sealing.unseal_bytes(data, find_key=find_key, about=about)
    except SealError as error:
        raise CannotOpen(str(error)) from error


def open_text(text: str, about: About) -> str:
    """The decrypted text, or the reason in brackets if it cannot be opened; unsealed text is returned unchanged.

    Only for fields that are shown to people: decrypted text must never become part of a request.
    """
    if not text.startswith(sealing.TEXT_PREFIX):
        return text
    try:
        return sealing.unseal_text(text, find_key=find_key, about=about)
    except (SealError, BadRequest) as error:
        return f"[{error}]"


def with_error(view: View, job_id: str | None) -> View:
    """The view with its job's error decrypted."""
    if job_id is None or view.error is None or not view.error.startswith(sealing.TEXT_PREFIX):
        return view
    return view.model_copy(update={"error": open_text(view.error, About(job_id, sealing.ERROR))})


def _store_key(key: X25519PrivateKey, passphrase: str) -> StoredKey:
    raw, public = key.private_bytes_raw(), sealing.public_text(key)
    if not passphrase:
        return StoredKey(public, b64encode(raw).decode())
    salt, nonce = secrets.token_bytes(16), secrets.token_bytes(12)
    box = _box(passphrase, salt).encrypt(nonce, raw, public.encode())
    return StoredKey(public, b64encode(salt + nonce + box).decode(), locked=True)


_unlocked: dict[str, X25519PrivateKey] = {}


def _private(key: StoredKey) -> X25519PrivateKey:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    known = _unlocked.get(key.public)
    if known is not None:
        return known
    data = b64decode(key.private)
    if key.locked:
        passphrase = os.environ.get(PASSPHRASE_ENV) or (ask_passphrase[0]() if ask_passphrase else "")
        try:
            data = _box(passphrase, data[:16]).decrypt(data[16:28], data[28:], key.public.encode())
        except InvalidTag:
            raise SealError(f"Wrong passphrase for key {key.fingerprint}; set {PASSPHRASE_ENV}.") from None
    private = X25519PrivateKey.from_private_bytes(data)
    _unlocked[key.public] = private
    return private


def _box(passphrase: str, salt: bytes) -> ChaCha20Poly1305:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return ChaCha20Poly1305(Scrypt(salt=salt, length=32, **_COST).derive(passphrase.encode()))
