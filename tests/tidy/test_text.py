"""Files contain nothing private, and their links resolve."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from tests.tidy.tree import ROOT, SRC, files, name, text

# Written with brackets, or this file would match itself. A registry host would tie the locks to one index.
PRIVATE = re.compile(r"/wor[k]/|/far[m]/|pypi[.]org|pythonhosted[.]org|registry[.]npmjs|deb[.]debian[.]org")

FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)


def prose(path: Path) -> str:
    return FENCE.sub("", path.read_text())


def links(path: Path) -> Iterator[str]:
    for match in LINK.finditer(CODE.sub("", prose(path))):
        target = match.group(1) or match.group(2)
        if not re.match(r"[a-z][a-z0-9+.-]*:", target, re.IGNORECASE):
            yield unquote(target)


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives the headings."""
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in HEADING.findall(prose(path)))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def resolves(source: Path, link: str) -> bool:
    where, _, anchor = link.partition("#")
    base = ROOT if where.startswith("/") else source.parent
    target = (base / where.lstrip("/")).resolve() if where else source
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target)


def test_no_machine_paths_or_registry_hosts() -> None:
    found = [
        f"{name(path)}:{number}: {line.strip()[:100]}"
        for path in files()
        if path.suffix != ".svg" and (content := text(path)) is not None
        for number, line in enumerate(content.splitlines(), start=1)
        if PRIVATE.search(line)
    ]
    assert not found


def test_relative_links_in_documents_resolve() -> None:
    documents = [path for path in files() if path.suffix == ".md"]
    assert not [f"{name(path)} -> {link}" for path in documents for link in links(path) if not resolves(path, link)]


def test_the_link_check_bites(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One & two\n[a](no.md) [b](#one--two) [c](#gone) [d](https://x.org/y) `[e](no.md)`\n")
    assert list(links(page)) == ["no.md", "#one--two", "#gone"]
    assert anchors(page) == {"one--two"}


def test_a_job_is_followed_in_few_files() -> None:
    """From submitting it to settling it, as ARCHITECTURE.md walks."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    walk = page.partition("1. **Submit.**")[2].partition("5. **Collect.**")[0]
    steps = set(re.findall(r"`([a-z_/]+\.py)`", walk))
    assert not [step for step in steps if not (SRC / step).is_file()]
    assert 15 < len(steps) <= 25


def test_documents_wrap_at_120() -> None:
    """Tables and pictures cannot."""
    pages = [
        *ROOT.glob("docs/*.md"),
        *(ROOT / page for page in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ]
    found = [
        f"{name(page)}: {line[:60]}…"
        for page in pages
        for line in prose(page).splitlines()
        if len(line) > 120 and not line.lstrip().startswith(("|", "!"))
    ]
    assert not found
