"""The dashboard's sources follow the rules of the rest: short files, no foreign hosts, no injected markup."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, files, name

WEB = ROOT / "web"
LINES_MAX = 300
#: Generated from docs/openapi.json; `make check` holds it against that.
GENERATED = WEB / "lib" / "api" / "schema.d.ts"
#: How a page could turn a stranger's text into markup, code or a request elsewhere.
FORBIDDEN = {
    r"dangerouslySetInnerHTML": "strangers' text is React text",
    r"\.(inner|outer)HTML\b|insertAdjacentHTML|document\.write\b": "strangers' text is React text",
    r"\beval\(|new Function\(": "the policy forbids it",
    r"javascript:": "no such links",
    r"@ts-(ignore|nocheck|expect-error)": "types are strict",
    r"https?://(?!127\.0\.0\.1|localhost|www\.w3\.org/)": "nothing is asked of another server",
}
#: Addresses in these are shown, not asked for: examples that a person types.
SHOWN = re.compile(r"example\.(com|org|net)|pool\.example|\$\{")


def web_sources() -> list[Path]:
    return [
        path
        for path in files()
        if path.is_relative_to(WEB) and path.suffix in (".ts", ".tsx", ".js", ".mjs") and path != GENERATED
    ]


def test_there_are_sources_to_check() -> None:
    assert len(web_sources()) > 20
    assert GENERATED.exists()


def test_files_are_short() -> None:
    lengths = {name(path): len(path.read_text().splitlines()) for path in web_sources()}
    assert not {path: lines for path, lines in lengths.items() if lines > LINES_MAX}


def test_file_names_are_kebab_case() -> None:
    odd = [name(path) for path in web_sources() if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*(\.\w+)+", path.name)]
    assert not odd


@pytest.mark.parametrize(("pattern", "why"), FORBIDDEN.items())
def test_no_source_allows_injected_markup_or_foreign_hosts(pattern: str, why: str) -> None:
    found = [
        f"{name(path)}:{number}: {line.strip()[:120]}"
        for path in web_sources()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(pattern, line) and not SHOWN.search(line)
    ]
    assert not found, why


#: Fetch files of the dashboard itself: the map's data, whose address the build knows, and the program of other pages.
OWN_FILES = {WEB / "components" / "mesh" / "world.ts", WEB / "lib" / "offline-pages.ts"}


def test_only_the_client_asks_the_hub() -> None:
    """And the live stream, which is no fetch. Blobs are made from bytes that the client fetched."""
    found = [
        name(path)
        for path in web_sources()
        if re.search(r"(?<![\w.])fetch\(|XMLHttpRequest|sendBeacon|new WebSocket", path.read_text())
        and not path.is_relative_to(WEB / "lib" / "api")
        and path not in OWN_FILES
    ]
    assert not found


def test_the_lock_names_no_registry_and_pins_every_byte() -> None:
    text = (WEB / "package-lock.json").read_text()
    assert '"resolved"' not in text
    assert "omit-lockfile-registry-resolved=true" in (WEB / ".npmrc").read_text()
    packages = json.loads(text)["packages"]
    loose = [path for path, package in packages.items() if path and not package.get("integrity")]
    assert not [path for path in loose if not packages[path].get("inBundle")]


def test_dependencies_are_pinned() -> None:
    package = json.loads((WEB / "package.json").read_text())
    versions = {**package["dependencies"], **package["devDependencies"]}
    assert not {one: version for one, version in versions.items() if not re.fullmatch(r"\d+\.\d+\.\d+", version)}
