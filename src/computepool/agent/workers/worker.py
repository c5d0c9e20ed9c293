"""The program inside the sandbox that calls the functions of one account, one after the other.

Runs as a script with the standard library, cloudpickle, values.py and bundles.py; the agent imports only the constants.
It may be killed at any moment, and the agent trusts none of its messages.

Messages are datagrams of JSON, so that each call is taken by exactly one reader: the agent keeps a copy of this end of
the socket, and takes back calls that have not started by reading them.
"""

from __future__ import annotations

import base64
import contextlib
import importlib
import json
import os
import re
import resource
import shutil
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TextIO

from computepool.protocol.jobs import bundles
from computepool.protocol.values import results, values

#: A longer message is written to a file in the work folder: a datagram must fit the socket's buffer.
FRAME_MAX = 64 * 1024
ERROR_CHARS_MAX = 8_000
#: In the work folder, by the number of the call: the file of a long call; the folder and the file of a long result; the
#: folder of its outputs.
CALL_FILE = ".call-{}"
RESULT_FOLDER = ".result-{}"
RESULT_FILE = "result"
OUTPUTS_FOLDER = ".outputs-{}"
#: Kinds of replies.
READY, RESULT, LONG_RESULT, RAISED, NO_MEMORY = "ready", "result", "long", "raised", "memory"

#: What a job declared, unless nothing: that it saves checkpoints, or that it also moves.
SAVES, MOVES = 1, 2

#: Names the variables that hold secrets, separated by commas.
SECRETS_VARIABLE = "COMPUTEPOOL_SECRETS"
_SECRET_MIN = 4
_secrets: list[str] = []

_STREAMS = ("stdout", "stderr")
_PROGRESS_GAP_NS = 500_000_000
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}")


class Worker:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._functions: dict[str, Callable[..., Any]] = {}
        self._pid = os.getpid()
        self._home = os.getcwd()
        self._outputs = os.environ["COMPUTEPOOL_OUTPUTS"]
        # Each call gets folders of its own there.
        self._places = {name: os.environ[name] for name in ("COMPUTEPOOL_CHECKPOINT", "COMPUTEPOOL_RESTORED")}
        self._calls = os.environ["COMPUTEPOOL_CALLS"]
        # Copies: a function may close its own standard streams.
        self._outputs_fds = (os.dup(1), os.dup(2))
        self._streams = {name: _stream(number) for number, name in enumerate(_STREAMS, start=1)}
        for name, stream in self._streams.items():
            setattr(sys, name, stream)
        self._cpu_us = _cpu_us()
        self._failed = 0  #: items of this call's bundle that raised

    def run(self) -> None:
        self._send([0, READY, "", 0, 0, 0, False, 0, 0, 0])
        while True:
            message = self._channel.recv(FRAME_MAX + 1)
            if not message:
                return
            call = json.loads(message)
            if len(call) == 1:
                call = json.loads(_read_once(CALL_FILE.format(call[0])))
            self._serve(call)

    def _serve(self, call: list[Any]) -> None:
        seq, spec, ids, payload, function, allow_pickle, saves, files = call
        environ = os.environ
        environ["COMPUTEPOOL_JOB_ID"], environ["COMPUTEPOOL_ATTEMPT"] = ids[0], ids[1]
        environ["COMPUTEPOOL_SLICE"], environ["COMPUTEPOOL_SLICES"] = ids[2], ids[3]
        for name, place in self._places.items():
            if saves:
                environ[name] = f"{place}-{ids[0]}-{ids[1]}"
            else:
                environ.pop(name, None)
        environ["COMPUTEPOOL_CALLS"] = f"{self._calls}-{ids[0]}-{ids[1]}"
        environ["COMPUTEPOOL_MOVES"] = "1" if saves == MOVES else ""
        self._failed = 0
        started = time.perf_counter_ns()
        kind, text = self._call(spec, payload, function=function, allow_pickle=allow_pickle, files=files)
        wall_us = (time.perf_counter_ns() - started) // 1000
        if os.getpid() != self._pid:
            os._exit(0)  # The function forked and returned twice; only the first process may reply.
        self._reply(seq, kind, text, wall_us=wall_us)

    def _call(
        self, spec: str, payload: Any, *, function: Any, allow_pickle: bool, files: list[list[str]] | None
    ) -> tuple[str, str]:
        """`files`: for each job whose result is among the arguments, the file with it."""
        try:
            target = self._functions.get(spec)
            if target is None:
                target = self._functions[spec] = _unpickle(function)
            data = None if payload is None else _bytes(payload)
            if data is not None and data[:1] == bundles.MARK:
                return self._call_each(target, data, allow_pickle=allow_pickle)
            with results.provide(_results(files or (), target, allow_pickle=allow_pickle)):
                args, kwargs = ((), {}) if data is None else _arguments(data, allow_pickle=allow_pickle)
            return RESULT, values.encode(target(*args, **kwargs), allow_pickle=allow_pickle)
        except MemoryError:
            return NO_MEMORY, "the function ran out of memory"
        except BaseException as error:  # noqa: BLE001 - SystemExit too: the function failed, not this program
            if getattr(error, "computepool_moved", False):
                # It continues on another host (sdk/runtime/checkpointing.py).
                return RESULT, values.encode(None)
            return RAISED, _traceback(error)

    def _call_each(self, target: Callable[..., Any], data: bytes, *, allow_pickle: bool) -> tuple[str, str]:
        """The items of a bundle, one by one: each has its own value or traceback.

        The results of two nodes are compared by this text, so it contains no times and no memory addresses. Running out
        of memory ends the whole bundle.
        """
        items = bundles.unpack(data)
        for name in self._places:  # All items would find what one of them saved.
            os.environ.pop(name, None)
        os.environ["COMPUTEPOOL_MOVES"] = ""
        parts: list[str] = []
        shown_at = time.perf_counter_ns()
        for item in items:
            try:
                args, kwargs = _arguments(item, allow_pickle=allow_pickle)
                text = values.encode(target(*args, **kwargs), allow_pickle=allow_pickle)
                parts.append(bundles.value_answer(text))
            except MemoryError:
                raise
            except BaseException as error:  # noqa: BLE001 - as for a single call
                parts.append(bundles.raised_answer(_ADDRESS.sub("0x…", _traceback(error))))
                self._failed += 1
            if os.getpid() != self._pid:
                os._exit(0)
            self._mend_streams()
            if os.getcwd() != self._home:
                os.chdir(self._home)
            if time.perf_counter_ns() - shown_at > _PROGRESS_GAP_NS:
                shown_at = time.perf_counter_ns()
                self._streams["stdout"].write(f"::progress {len(parts) / len(items):.4f}\n")
        if os.listdir(self._outputs):
            shutil.rmtree(self._outputs, ignore_errors=True)
            os.makedirs(self._outputs, exist_ok=True)
            return RAISED, bundles.WROTE_OUTPUTS
        return RESULT, bundles.answer(parts)

    def _reply(self, seq: int, kind: str, text: str, *, wall_us: int) -> None:
        self._mend_streams()
        # Standard output and error are files of the agent: this call's output ends at their present sizes.
        ends = [os.fstat(fd).st_size for fd in self._outputs_fds]
        has_outputs = self._set_outputs_aside(seq)
        used = resource.getrusage(resource.RUSAGE_SELF)
        total_us = _cpu_us()
        cpu_us, self._cpu_us = total_us - self._cpu_us, total_us
        reply = [seq, kind, text, wall_us, cpu_us, used.ru_maxrss, has_outputs, *ends, self._failed]
        if len(text) > FRAME_MAX // 6 or not self._send(reply):
            folder = Path(self._home, RESULT_FOLDER.format(seq))
            folder.mkdir()
            (folder / RESULT_FILE).write_text(text, encoding="utf-8", errors="replace")
            self._send([seq, LONG_RESULT if kind == RESULT else kind, "", *reply[3:]])
        if os.getcwd() != self._home:
            os.chdir(self._home)

    def _send(self, reply: list[Any]) -> bool:
        message = json.dumps(reply).encode()
        if len(message) > FRAME_MAX:
            return False
        self._channel.send(message)
        return True

    def _mend_streams(self) -> None:
        """Flush output, and restore working streams for the next call."""
        for number, name in enumerate(_STREAMS, start=1):
            stream = getattr(sys, name)
            with contextlib.suppress(Exception):  # It may be closed, or any object at all.
                stream.flush()
            if stream is not self._streams[name] or stream.closed:
                os.dup2(self._outputs_fds[number - 1], number)
                self._streams[name] = _stream(number)
                setattr(sys, name, self._streams[name])

    def _set_outputs_aside(self, seq: int) -> bool:
        try:
            if not os.listdir(self._outputs):
                return False
            os.rename(self._outputs, os.path.join(self._home, OUTPUTS_FOLDER.format(seq)))
            os.mkdir(self._outputs)
        except OSError:
            os.makedirs(self._outputs, exist_ok=True)
            return False
        return True


def _stream(fd: int) -> TextIO:
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _unpickle(source: Any) -> Any:
    return importlib.import_module("pickle").loads(_bytes(source))


def _arguments(data: bytes, *, allow_pickle: bool) -> Any:
    """Pickled arguments, or one encoded list of positional arguments for submitters that must not pickle."""
    if data[:1] == b"[":
        return values.decode(data.decode(), allow_pickle=allow_pickle), {}
    return importlib.import_module("pickle").loads(data)


def _results(files: Iterable[list[str]], target: Any, *, allow_pickle: bool) -> dict[str, Any]:
    """The values by job. They may have classes that the function names, which were sent with it."""
    known = [each for each in getattr(target, "__globals__", {}).values() if isinstance(each, type)] if files else []
    texts = {job_id: _read_once(name) for job_id, name in files}  # all of them, so that no file is left
    found = {}
    for job_id, text in texts.items():
        try:
            found[job_id] = values.decode(text.decode(), allow_pickle=allow_pickle, classes=known)
        except ValueError as error:
            raise ValueError(f"the result of job {job_id} cannot be read: {error}") from None
    return found


def _bytes(source: Any) -> bytes:
    """`source` is base64 text, or a list with the name of a file that holds such text or the bytes."""
    data: Any = source
    if isinstance(source, list):
        data = Path(source[0]).read_bytes()
    if isinstance(data, str) or data[:1] not in (b"\x80", b"[", bundles.MARK):
        data = base64.b64decode(data)
    return bytes(data)


def _traceback(error: BaseException) -> str:
    """The traceback without this program's frames, cut in the middle if it is long."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    except Exception:  # noqa: BLE001 - an exception whose own __str__ raises
        text = f"{type(error).__name__} (its message cannot be shown)"
    for secret in _secrets:  # The agent masks them, too, but would not know one that is cut here.
        text = text.replace(secret, "***")
    if len(text) > ERROR_CHARS_MAX:
        half = ERROR_CHARS_MAX // 2 - 10
        text = f"{text[:half]}\n[…]\n{text[-half:]}"
    return text.encode("utf-8", "replace").decode()


def _read_once(name: str) -> bytes:
    path = Path(name)
    data = path.read_bytes()
    path.unlink()
    return data


def _cpu_us() -> int:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return int((own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime) * 1e6)


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    names = filter(None, os.environ.get(SECRETS_VARIABLE, "").split(","))
    secrets = (os.environ.get(name, "").strip() for name in names)
    _secrets[:] = sorted((one for one in secrets if len(one.encode()) >= _SECRET_MIN), key=len, reverse=True)
    sys.argv = ["function"]
    sys.path.append(os.getcwd())  # for modules among the inputs
    importlib.import_module("cloudpickle")  # so that the first call need not
    Worker(channel).run()


if __name__ == "__main__":
    main()
