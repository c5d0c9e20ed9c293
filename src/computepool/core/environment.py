"""An environment that a node's owner offers to jobs: a Python with packages, identified by them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Environment:
    """Nodes that offer the same packages for the same Python share one. One text takes a fraction of a dict's memory."""

    python: str  #: "3.12"
    packages: str  #: lines of `name==version`, with a newline before and after each
    digest: str

    @classmethod
    def of(cls, python: str, packages: Mapping[str, str]) -> Environment:
        """`packages`: versions by normalised name."""
        text = "".join(f"\n{name}=={version}" for name, version in sorted(packages.items())) + "\n"
        return cls(python, text, hashlib.sha256(f"{python}{text}".encode()).hexdigest()[:32])

    def version(self, name: str) -> str | None:
        """The version of the package with this normalised name; None if it is not there."""
        begin = self.packages.find(f"\n{name}==")
        if begin < 0:
            return None
        begin += len(name) + 3
        return self.packages[begin : self.packages.index("\n", begin)]
