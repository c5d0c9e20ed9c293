"""A hub and a node of this machine, as processes that are started and stopped together: `pool up` and `pool host`."""

from __future__ import annotations

import fcntl
import json
import math
import os
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from computepool.cli import output
from computepool.cli.local.children import Child
from computepool.cli.node.options import CODE_ENV
from computepool.core.errors import ComputePoolError, Conflict
from computepool.sdk.client.config import Config, config_path, load_config, save_config, save_hub_keys
from computepool.sdk.errors import RateLimited, Unauthenticated, Unavailable

if TYPE_CHECKING:
    from rich.status import Status

    from computepool.sdk import Pool

HUB_START_S = 60.0
NODE_START_S = 60.0


class Stopped(Exception):
    """Ctrl-C or SIGTERM."""


class LocalPool:
    """The processes of one folder. Leaving the block stops them, the node first: it gives back what it has not started."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self._children: list[Child] = []
        self._stop = threading.Event()
        self._lock = -1

    def __enter__(self) -> LocalPool:
        self.base.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._lock_folder()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._stop.set())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        for child in reversed(self._children):
            child.stop()
        os.close(self._lock)
        if self._stop.is_set():
            output.note("Stopped.")
        return kind is Stopped

    def _lock_folder(self) -> None:
        """Two starts at the same moment would each make a new key, and only one of them would hold."""
        self._lock = os.open(self.base / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise Conflict(
                f"Already running in {self.base}. Stop it, or choose a different --data."
            ) from None

    def start_hub(
        self, host: str, port: int, *, public_url: str = "", env: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Returns what the hub's first-run set-up made: a key and one-time codes, through a pipe, never a file."""
        reading, writing = os.pipe()
        arguments = ["hub", "start", "--host", host, "--port", str(port), "--data", str(self.base)]
        arguments += ["--announce", str(writing), *(["--public-url", public_url] if public_url else [])]
        self._children.append(Child("hub", arguments, log=self.base / "hub.log", pass_fds=[writing], env=env))
        os.close(writing)
        with os.fdopen(reading) as pipe:
            self.until(
                lambda: bool(select.select([pipe], [], [], 0)[0]), timeout_s=HUB_START_S, what="The hub"
            )
            text = pipe.read()
        if not text:
            self._children[-1].wait(2)
            self._check_alive()
        words: dict[str, str] = json.loads(text)
        return words

    def start_node(self, options: Sequence[str], *, url: str, code: str | None) -> None:
        """The code goes by the environment: a command line can be read by everybody on the machine."""
        arguments = ["node", "start", "--hub", url, "--data", str(self.base), *options]
        env = {} if code is None else {CODE_ENV: code}
        self._children.append(Child("node", arguments, log=self.base / "node.log", env=env))

    def until(self, done: Callable[[], bool], *, timeout_s: float, what: str) -> bool:
        """Wait for a condition while the children live; False when it takes too long."""
        end = time.monotonic() + timeout_s
        while not done():
            if self._stop.wait(0.05):
                raise Stopped
            self._check_alive()
            if time.monotonic() > end:
                log = self._children[-1].log
                output.note(f"{what} is not ready after {timeout_s:.0f} s; still waiting. See {log}")
                return False
        return True

    def until_ready(self, done: Callable[[], bool], *, timeout_s: float, what: str) -> None:
        """Like `until`, but keep waiting after the note."""
        if not self.until(done, timeout_s=timeout_s, what=what):
            self.until(done, timeout_s=math.inf, what=what)

    def wait(self) -> None:
        """Until somebody stops it, or one of the processes stops by itself, which is an error."""
        while not self._stop.wait(0.3):
            self._check_alive()

    def _check_alive(self) -> None:
        for child in self._children:
            if not child.running:
                raise ComputePoolError(
                    f"The {child.name} stopped unexpectedly. End of {child.log}:\n{child.last_words()}"
                )


def sign_in(machine: LocalPool, url: str, key: str) -> Pool:
    """When the hub answers. The CLI in the next terminal is signed in at once."""
    from computepool.sdk import connect

    pool = connect(url, key, retry_for=0)
    machine.until_ready(lambda: _answers(pool), timeout_s=HUB_START_S, what="The hub")
    if config_path().exists() and load_config().hub != url:
        output.note(f"The CLI now uses {url} (previously {load_config().hub}).")
    save_config(Config(hub=url, key=key))
    save_hub_keys(url, pool.accounts.hub_keys())
    return pool


def _answers(pool: Pool) -> bool:
    """Our own hub, and not another one that got the port first: that one does not know the key."""
    try:
        pool.accounts.me()
    except (RateLimited, Unauthenticated, Unavailable):
        return False
    return True


def program() -> str:
    """How to call this program from here: by its bare name only where a shell would find it."""
    here = Path(sys.argv[0])
    if not here.exists() or shutil.which("pool") == str(here.absolute()):
        return "pool"
    try:
        return str(here.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(here.absolute())


@contextmanager
def status_line(text: str) -> Iterator[Callable[[str], None]]:
    """What is going on, in one line that changes where there is a terminal. Gives the function that changes it."""
    if not sys.stderr.isatty():
        output.note(f"{text} …")
        yield lambda words: output.note(f"{words} …")
        return
    status: Status
    with output.console(stderr=True).status(f"{text} …") as status:
        yield lambda words: status.update(f"{words} …")
