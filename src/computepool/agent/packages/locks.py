"""Lock files that an owner offers as an environment: uv.lock, or requirements with exact versions."""

from __future__ import annotations

import subprocess
from pathlib import Path

from computepool.agent.packages.environments import find_uv
from computepool.core.errors import BadRequest
from computepool.core.plaintext import is_plain

LOCK_BYTES_MAX = 1024 * 1024
_UV_LOCK = "uv.lock"
_EXPORT_S = 60.0
_ERROR_CHARS = 300
#: Options of a line that uv may follow; others would reach for files and indexes beside the list.
_ALLOWED = "--hash="


def read_lock(path: Path, *, uv: str | None = None) -> str:
    """The requirements of a lock file, one exact version each, as uv installs them. Raises BadRequest."""
    try:
        text = _export(path, uv) if path.name == _UV_LOCK else _read(path)
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror or error}.") from error
    count = 0
    for line in text.replace("\\\n", " ").splitlines():
        words = line.partition(" #")[0].split()
        if not words or words[0].startswith("#"):
            continue
        if words[0].startswith("-") or any(word.startswith("-") and not word.startswith(_ALLOWED) for word in words):
            raise BadRequest(f"{path}: options such as {words[0][:40]!a} are not supported; list packages alone.")
        if "==" not in line or not is_plain(line.replace("\t", " ")) or "@" in "".join(words):
            raise BadRequest(f"{path}: {line.strip()[:80]!a} names no exact version, such as torch==2.11.0.")
        count += 1
    if not count:
        raise BadRequest(f"{path} lists no packages.")
    return text


def _read(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(LOCK_BYTES_MAX + 1)
    if len(data) > LOCK_BYTES_MAX:
        raise BadRequest(f"{path} is larger than {LOCK_BYTES_MAX} bytes.")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadRequest(f"{path} is no text.") from None


def _export(path: Path, uv: str | None) -> str:
    """What uv.lock pins, by the owner's own uv, which resolves and fetches nothing."""
    program = uv or find_uv()
    if program is None:
        raise BadRequest("There is no uv on this machine to read uv.lock with.")
    command = [program, "export", "--frozen", "--no-emit-project", "--no-dev", "--no-header", "--offline"]
    try:
        ran = subprocess.run(
            [*command, "--project", path.absolute().parent],
            capture_output=True,
            text=True,
            timeout=_EXPORT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise BadRequest(f"uv took more than {_EXPORT_S:g} s to read {path}.") from None
    if ran.returncode != 0:
        raise BadRequest(f"uv cannot read {path}: {' '.join(ran.stderr.split())[-_ERROR_CHARS:]}")
    if len(ran.stdout) > LOCK_BYTES_MAX:
        raise BadRequest(f"{path} lists more than {LOCK_BYTES_MAX} bytes of packages.")
    return ran.stdout
