"""The person's keys for sealing: made, kept in a file of their own, used to open what comes back.

The file lies beside the configuration, readable by its owner alone. Its first key is the one that jobs are sealed to;
older ones stay, so that what was sealed to them opens. A passphrase, where one was chosen, is asked for in
COMPUTEPOOL_SEAL_PASSPHRASE or by the CLI.
"""

from __future__ import annotations

import json
import os
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from computepool.protocol import sealing
from computepool.protocol.sealing import About, SealError
from computepool.sdk.client.config import config_path
from computepool.sdk.errors import BadRequest, ComputePoolError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    from computepool.protocol.jobs.groups import GroupItem
    from computepool.protocol.jobs.jobs import AttemptView, JobDetail, JobResult, JobView

    #: What has an error of a job in it.
    View = TypeVar("View", JobView, JobDetail, JobResult, AttemptView, GroupItem)

PASSPHRASE_ENV = "COMPUTEPOOL_SEAL_PASSPHRASE"
_FILE = "seal.json"
_COST = {"n": 2**15, "r": 8, "p": 1}
_HOW = "make one with `pool seal init`, or bring yours with `pool seal import FILE`"

#: Asks a person for the passphrase; set by the CLI.
ask_passphrase: list[Callable[[], str]] = []


@dataclass(frozen=True, slots=True)
class StoredKey:
    public: str
    private: str  #: base64; with a passphrase: salt, nonce and ciphertext
    locked: bool = False

    @property
    def fingerprint(self) -> str:
        return sealing.key_id(sealing.public_bytes(self.public)).hex()


@dataclass(frozen=True, slots=True)
class KeyFile:
    keys: tuple[StoredKey, ...] = ()
    always: bool = False  #: seal every job that does not say otherwise


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
    keys = [{"public": key.public, "private": key.private, "locked": key.locked} for key in file.keys]
    return json.dumps({"keys": keys, "always": file.always}, indent=2) + "\n"


def save(file: KeyFile, path: Path | None = None) -> Path:
    """A new file that replaces the old one, readable by its owner alone from the first byte."""
    path = path or key_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as target:
        target.write(as_json(file))
    fresh.replace(path)
    return path


def init(*, passphrase: str = "", replace_current: bool = False, always: bool | None = None) -> StoredKey:
    """Make a key pair. One that is there already is only replaced when asked for, and then still opens old files."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    file = load()
    if file.keys and not replace_current:
        raise BadRequest(
            f"There is already a key ({file.keys[0].fingerprint}). Pass --replace to create a new one."
        )
    made = _store_key(X25519PrivateKey.generate(), passphrase)
    save(replace(file, keys=(made, *file.keys), always=file.always if always is None else always))
    return made


def add(text: str) -> KeyFile:
    """Take over exported keys; those that are here stay the current ones."""
    try:
        other = _parse(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRequest(f"These are not exported sealing keys: {error}.") from error
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


def recipient(wish: bool | str | None) -> str | None:
    """The public key for `seal=…`: yours, one given as text, or none."""
    if isinstance(wish, str):
        try:
            sealing.public_bytes(wish)
        except ValueError as error:
            raise BadRequest(f"seal: {error}.", field="seal") from None
        return wish
    if wish is False:
        return None
    file = load()
    if wish is None and not file.always:
        return None
    if not file.keys:
        raise BadRequest(f"seal: there is no key to seal to: {_HOW}.", field="seal")
    return file.keys[0].public


# opening


class CannotOpen(ComputePoolError):
    """It is sealed, and cannot be opened here."""

    code = "sealed"


def find_key(key_id: bytes) -> X25519PrivateKey:
    for key in load().keys:
        if key.fingerprint == key_id.hex():
            return _private(key)
    raise SealError(
        f"This is sealed to the key {key_id.hex()}, which is not on this machine. Import it: pool seal import FILE"
    )


def open_file(source: Path, target: Path, *, about: About | None = None) -> About:
    """`target` appears whole, or not at all. Returns what it was sealed as, which is `about` where that is given."""
    part = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.opening")
    try:
        with source.open("rb") as sealed, os.fdopen(_private_file(part), "wb") as plain:
            view = sealing.unseal(sealed.read, plain.write, find_key=find_key, about=about)
        part.replace(target)
        return view
    except SealError as error:
        raise CannotOpen(f"{source.name}: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def _private_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def open_bytes(data: bytes, *, about: About | None = None) -> bytes:
    """As it is where it is not sealed."""
    if not sealing.is_sealed(data):
        return data
    try:
        return sealing.unseal_bytes(data, find_key=find_key, about=about)
    except SealError as error:
        raise CannotOpen(str(error)) from error


def open_text(text: str, about: About) -> str:
    """As it is where it is not sealed; why not, where it cannot be opened.

    For the few fields that only people read: what is opened must not find its way into a request.
    """
    if not text.startswith(sealing.TEXT_PREFIX):
        return text
    try:
        return sealing.unseal_text(text, find_key=find_key, about=about)
    except (SealError, BadRequest) as error:
        return f"[{error}]"


def with_error(view: View, job_id: str | None) -> View:
    """What the hub said, with the words of the job's error opened."""
    if job_id is None or view.error is None or not view.error.startswith(sealing.TEXT_PREFIX):
        return view
    return view.model_copy(update={"error": open_text(view.error, About(job_id, sealing.ERROR))})


# passphrases


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
