"""Files are named after what they own, and packages hide nothing in their `__init__.py`."""

from __future__ import annotations

from tests.tidy.tree import SRC, files, name, sources

BANNED_STEMS = {"util", "utils", "helper", "helpers", "common", "manager", "misc", "base_classes"}
INIT_WITH_NAMES = {SRC / "__init__.py", SRC / "sdk" / "__init__.py"}


def test_no_file_is_called_after_nothing() -> None:
    code = {".py", ".ts", ".tsx", ".sh"}
    assert not [name(path) for path in files() if path.suffix in code and path.stem.lower() in BANNED_STEMS]


def test_init_files_are_empty() -> None:
    inits = [path for path in sources() if path.name == "__init__.py" and path not in INIT_WITH_NAMES]
    assert not [name(path) for path in inits if path.read_text().strip()]


def test_every_package_has_an_init_file() -> None:
    folders = {path.parent for path in sources()}
    assert not [name(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()]


def test_public_names_exist() -> None:
    """What `computepool` and `computepool.sdk` promise in `__all__` can really be imported."""
    import computepool
    import computepool.sdk

    for package in (computepool, computepool.sdk):
        missing = [word for word in getattr(package, "__all__", ()) if not hasattr(package, word)]
        assert not missing, package.__name__
