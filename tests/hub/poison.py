"""Specs that would fail on every node and look like the node's fault."""

from __future__ import annotations

import hashlib
from typing import Any

EMPTY = hashlib.sha256(b"").hexdigest()


def script(source: str) -> dict[str, Any]:
    return {"kind": "script", "source": source}


#: A word of the error, and the spec.
POISON: list[tuple[str, dict[str, Any]]] = [
    ("'numpy<=>1' is not a plain requirement", {"dependencies": ["numpy<=>1"]}),
    ("not a plain requirement", {"dependencies": ["six", "six @ file:///etc/passwd"]}),
    ("not a plain requirement", {"dependencies": ["six\u202e"]}),
    ("x1b", {"dependencies": ["six\x1b[2J"]}),
    ("at most 200 characters", {"dependencies": ["a" + " " * 2_700 + "\x00"]}),
    ("at most 100", {"dependencies": [f"a{number}" for number in range(101)]}),
    ("not a plain requirement", script("# /// script\n# dependencies = ['numpy<=>1']\n# ///\n")),
    ("nested too deeply", script(f"# /// script\n# x = {'[' * 1_000}\n# ///\n")),
    ("not valid TOML", script("# /// script\n# x =\n# ///\n")),
    ("longer than", script(f"# /// script\n# x = '{'a' * 2_000}'\n# ///\n")),
    ("more than one", script("# /// script\n# x = 1\n# ///\n\n" * 2)),
    ("first line is longer", script(f"#!/bin/{'x' * 2_000}")),
    ("take 2001100", {"env": {f"V{number}": "x" * 10_000 for number in range(200)}}),
    ("argv and env", {"argv": ["true", *["\u20ac" * 16_000] * 3]}),
    ("NUL", {"argv": ["true", "a\x00b"]}),
    ("NUL", {"env": {"A": "a\x00b"}}),
    ("empty", {"argv": [""]}),
    ("u202e", {"name": "report\u202etxt.exe"}),
    ("x9b", {"name": "job\x9b2J"}),
    ("u2066", {"needs": {"host": "a\u2066b"}}),
    ("plain relative path", {"inputs": [{"name": "../x", "digest": EMPTY, "size": 0}]}),
]
