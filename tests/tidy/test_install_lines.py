"""The documented installation commands, which must work where the distribution manages Python (PEP 668)."""

from __future__ import annotations

import re

from tests.tidy.tree import ROOT

#: Each of these was run with Debian 12's own Python, from a fresh clone, with a home of its own.
TRIED = {
    "pipx install .",
    "uv tool install .",
    "python3 -m venv ~/.computepool && ~/.computepool/bin/pip install .",
    'pipx install ".[hub]"',
    'uv tool install ".[hub]"',
}
_LINE = re.compile(
    r"(?:pipx install|uv tool install|python3 -m venv \S+ && \S+/pip install) (?:\.|\"[^\"]+\")(?=[\s`]|$)"
)
#: Outside a virtual environment, pip refuses on Debian 12, Ubuntu 23.04, Fedora 38 and what is newer.
_BARE_PIP = re.compile(r"(?<![\w/.-])(?<!uv )pip3? install")


def test_the_documents_install_by_lines_that_were_tried() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    assert {line for page in pages for line in _LINE.findall(page.read_text())} == TRIED


def test_nobody_is_told_to_install_into_the_systems_python() -> None:
    told = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    told += [*(ROOT / "src").rglob("*.py"), *(ROOT / "web" / "components").rglob("*.tsx")]
    assert len(told) > 300
    assert [str(path) for path in told if _BARE_PIP.search(path.read_text())] == []
