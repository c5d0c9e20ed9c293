"""A Python other than the agent's own: its paths on the host and in the sandbox, and its environment variables."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: The minor version of the agent's own.
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True)
class Interpreter:
    minor: str  #: "3.12"
    home: Path  #: on the host; contains `bin` and `lib`

    @property
    def path(self) -> Path:
        return self.home / "bin" / f"python{self.minor}"

    @property
    def site(self) -> Path:
        return self.home / "lib" / f"python{self.minor}" / "site-packages"

    @property
    def inside(self) -> str:
        """Its home inside sandboxes that have mounts."""
        return f"/opt/python{self.minor}"

    def env(self, home: str, own: Mapping[str, str]) -> dict[str, str]:
        """`home`: where the job sees it. `own`: variables of the agent's own Python, which starts some jobs."""
        libraries = filter(None, (f"{home}/lib", own.get("LD_LIBRARY_PATH")))
        return {"PATH": f"{home}/bin:{own['PATH']}", "LD_LIBRARY_PATH": ":".join(libraries)}
