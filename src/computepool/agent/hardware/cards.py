"""Graphics cards as values, and the tools of their makers."""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from computepool.core.trust.tiers import tier_of

_log = logging.getLogger(__name__)

TOOL_TIMEOUT_S = 20.0
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedCard:
    """A card, or a part of one that the driver shows as a card of its own (a MIG device)."""

    name: str
    vram_mb: int
    maker: str  #: nvidia or amd
    ident: str = ""  #: its name in the VISIBLE_DEVICES variable of the maker's runtime
    nodes: tuple[str, ...] = ()  #: device nodes that a job needs to use it
    compute_capability: str = ""  #: of NVIDIA cards, such as 9.0

    @property
    def is_part(self) -> bool:
        """A MIG device."""
        return self.ident.startswith("MIG-")

    @property
    def tier(self) -> str:
        return tier_of(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardLoad:
    cards: int
    busy: (
        float | None
    )  #: in cards: 1.5 is one card in full use and another in half use; None: unknown, as of MIG devices
    vram_mb: int

    @property
    def percent(self) -> int | None:
        return None if self.busy is None else min(100, round(100 * self.busy / self.cards))


def run_tool(argv: Sequence[str]) -> str | None:
    """The output of a program; None if it is missing, fails or times out."""
    program = shutil.which(argv[0])
    if program is None:
        return None
    try:
        done = subprocess.run([program, *argv[1:]], capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        _log.warning("cannot run %s: %s", argv[0], error)
        return None
    return done.stdout if done.returncode == 0 else None


def existing_paths(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(path for path in paths if Path(path).exists())
