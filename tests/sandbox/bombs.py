"""More hostile jobs: those that exhaust the node, and those that leave traps in their folder.

Run like hostile.py: `bombs.py NAME JSON_ARGUMENTS`. They stop by themselves if nothing stops them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import sys
import threading
import time


def memory_bomb():
    held = []
    while True:
        held.append(b"x" * (4 << 20))


def memory_bomb_children():
    for _ in range(8):
        if os.fork() == 0:
            held = b"x" * (100 << 20)
            time.sleep(30)
            os._exit(len(held) & 1)
    statuses = [os.wait()[1] for _ in range(8)]
    os._exit(1 if any(statuses) else 0)


def fork_bomb():
    count = 0
    try:
        while count < 5000:
            if os.fork() == 0:
                signal.pause()
            count += 1
    except OSError as error:
        return {"forks": count, "errno": errno.errorcode[error.errno]}
    return {"forks": count}


def fork_bomb_wild():
    while True:
        with contextlib.suppress(OSError):
            os.fork()


def thread_bomb():
    count = 0
    stop = threading.Event()
    try:
        while count < 5000:
            threading.Thread(target=stop.wait, daemon=True).start()
            count += 1
    except RuntimeError:
        pass
    stop.set()
    return {"threads": count}


def fill(folders):
    """Write until refused; MB written per folder."""
    got = {}
    for folder in folders:
        written = 0
        try:
            with open(f"{folder}/big", "wb", buffering=0) as file:
                while written < 400 << 20:
                    written += file.write(b"x" * (1 << 20))
        except OSError as error:
            got[folder] = [written >> 20, errno.errorcode[error.errno]]
        else:
            got[folder] = [written >> 20, "never stopped"]
        with contextlib.suppress(OSError):
            os.unlink(f"{folder}/big")
    return got


def fill_slowly():
    """Files below the size limit of one, and in all too few to fill the memory, however late anybody looks."""
    for number in range(5):
        with open(f"part{number}", "wb") as file:
            file.write(b"x" * (4 << 20))
    time.sleep(60)


def fill_unlinked():
    """Files without a name, which are not found in the folder."""
    held = []
    for number in range(5):
        held.append(os.open(f"part{number}", os.O_CREAT | os.O_WRONLY))
        os.unlink(f"part{number}")
        os.write(held[-1], b"x" * (4 << 20))
    time.sleep(60)


def fill_inodes():
    for number in range(1_000_000):
        if number % 1000 == 0:
            os.mkdir(f"d{number // 1000}")
        os.close(os.open(f"d{number // 1000}/f{number}", os.O_CREAT | os.O_WRONLY))


def spin():
    while True:
        pass


def ignore_signals():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        time.sleep(1)


def daemonize(marker):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            os.execv("/bin/sleep", [marker, "300"])
        os._exit(0)
    os.wait()
    return {}


# ------------------------------------------------------------------ what is left in the folder
def evil_outputs(secret):
    os.chdir("outputs")
    with open("plain", "w") as file:
        file.write("fine")
    os.symlink(secret, "link")
    os.symlink("/etc", "folder_link")
    os.link("plain", "hard_link_a")
    with open("secret_twin", "w") as file:
        file.write("x")
    os.link("secret_twin", "secret_twin_2")
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    with open("setuid", "w") as file:
        file.write("#!/bin/sh\n")
    os.chmod("setuid", 0o6777)
    with open(b"bad\xffname", "w"), open("new\nline", "w"), open("bell\x07", "w"):
        pass
    with open("sparse", "w") as file:
        file.truncate(60 << 20)
    os.makedirs("a/b/c")
    with open("a/b/c/deep", "w") as file:
        file.write("deep")
    with open("locked", "w") as file:
        file.write("locked")
    os.chmod("locked", 0)
    os.unlink("hard_link_a")
    return {}


def replace_outputs(target):
    os.rmdir("outputs")
    os.symlink(target, "outputs")
    return {}


def deep_tree(depth):
    for _ in range(depth):
        os.mkdir("d" * 100)
        os.chdir("d" * 100)
    with open("bottom", "w") as file:
        file.write("x")
    os.chmod(".", 0)
    return {}


if __name__ == "__main__":
    found = globals()[sys.argv[1]](*json.loads(sys.argv[2]))
    sys.stdout.write(json.dumps(found, default=str) + "\n")
    sys.stdout.flush()
    os._exit(0)
