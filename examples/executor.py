"""The pool as a concurrent.futures.Executor.

Run:  python examples/executor.py
"""

import hashlib
from concurrent.futures import Executor, as_completed

from computepool import connect


def stretch(password: str) -> str:
    """Key stretching, as a small CPU-bound task."""
    return hashlib.pbkdf2_hmac("sha256", password.encode(), b"salt", 50_000).hex()


def stretch_all(passwords: list[str], executor: Executor) -> dict[str, str]:
    """Independent of ComputePool: it also works with a ProcessPoolExecutor."""
    futures = {executor.submit(stretch, password): password for password in passwords}
    return {futures[future]: future.result() for future in as_completed(futures)}


if __name__ == "__main__":
    with connect() as pool, pool.executor(cores=1, retries=1) as executor:
        stretched = stretch_all(["correct", "horse", "battery", "staple"], executor)
        for password, key in sorted(stretched.items()):
            print(f"{password:8} {key[:16]}")
