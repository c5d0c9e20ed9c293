"""The root file system of jobs, built from what this machine has: Python, a shell, small tools, libraries.

Nothing else of the host is in it: no list of installed programs, no configuration, no users' files. The layout is the same
on every system: one /usr, with /bin and the like as links into it.
"""

from __future__ import annotations

import compileall
import functools
import os
import py_compile
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from computepool.agent.sandbox.base import SandboxError
from computepool.agent.sandbox.runtime import elf


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


#: More modules than this without byte code are compiled on all processors.
_MANY = 50

#: Where jobs find their Python.
PYTHON = "/opt/python"
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
SITE = f"lib/{_VERSION}/site-packages"

#: Links at the top of the tree, into /usr.
LINKS = {name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")}
_PROGRAM_FOLDERS = ("/usr/bin", "/bin", "/usr/sbin", "/sbin")
#: Folders of the host from which an owner may add something, which keeps its path.
_ADDABLE = ("/usr/", "/opt/")

#: Included if this machine has them. None needs privileges, and none is anything but a common tool.
_PROGRAMS = _words("""
[ arch awk b2sum base32 base64 basename bash basenc bc bunzip2 bzcat bzip2 cat chmod cksum clear cmp comm cp csplit
cut dash date dd df diff diff3 dir dirname du echo egrep env expand expr factor false fgrep find flock fmt fold free
gawk getconf getopt grep groups gunzip gzip head hostname id install join jq kill ldconfig less link ln locale ls mawk
md5sum mkdir mkfifo mktemp more mv nice nl nohup nproc numfmt od paste patch pathchk pgrep pkill pr printenv printf ps
ptx pwd readlink realpath reset rev rm rmdir sdiff sed seq setsid sh sha1sum sha224sum sha256sum sha384sum sha512sum
shred shuf sleep sort split stat stdbuf stty sum sync tac tail tar taskset tee test time timeout top touch tput tr true
truncate tsort tty uname uncompress unexpand uniq unlink unxz unzip uptime vdir wc which whoami xargs xz xzcat xzgrep
yes zcat zdiff zgrep zip zstd
""")

#: Libraries that programs and wheels load without being linked to them, or that wheels expect from the system.
_LIBRARIES = _words("""
libanl.so.1 libatomic.so.1 libbz2.so.1.0 libc.so.6 libcrypt.so.1 libcrypto.so.3 libdl.so.2 libexpat.so.1 libffi.so.8
libgcc_s.so.1 libgfortran.so.5 libgomp.so.1 liblz4.so.1 liblzma.so.5 libm.so.6 libmvec.so.1 libncursesw.so.6
libnss_dns.so.2 libnss_files.so.2 libnuma.so.1 libpthread.so.0 libquadmath.so.0 libreadline.so.8 libresolv.so.2
librt.so.1 libsqlite3.so.0 libssl.so.3 libstdc++.so.6 libtinfo.so.6 libutil.so.1 libuuid.so.1 libz.so.1 libzstd.so.1
""")

_FOLDERS = ("/usr/lib/locale/C.utf8", "/usr/lib/locale/C.UTF-8", "/usr/share/zoneinfo", "/usr/libexec/coreutils")
#: Copies of the time zones in other forms, and a link to the owner's zone.
_NOT_ZONES = frozenset({"posix", "right", "localtime"})
_TERMINFO = ("/usr/share/terminfo", "/lib/terminfo")
_TERMINALS = _words("ansi dumb linux screen screen-256color tmux tmux-256color vt100 vt220 xterm xterm-256color")
_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_SERVICES = ("/etc/services", "/etc/protocols")

#: Not needed to run anything, and more than half of Python's size.
LEFT_OUT = frozenset(
    _words("""
__phello__ dist-packages ensurepip idlelib lib2to3 site-packages sitecustomize.py test tests tkinter turtledemo
""")
)


class Tree:
    def __init__(self, root: Path) -> None:
        self._root = root
        #: The host's files that it was made from, without Python's own library: path -> size and time.
        self.sources: dict[str, tuple[int, int]] = {}
        self.own_libraries = False  #: the interpreter was built against libraries of its own, which are in the tree
        self._search = elf.search_folders()
        self._placed: set[str] = set()
        self._system_library = _library_folder(self._search)

    def fill(self, extra: Mapping[str, Path], add: Sequence[str]) -> None:
        """`extra`: name in site-packages -> file or folder. `add`: programs, files and folders that the owner adds."""
        for name, target in LINKS.items():
            (self._root / target).mkdir(mode=0o755, parents=True)
            (self._root / name).symlink_to(target)
        self._python(extra)
        for name in _PROGRAMS:
            if (program := _program(name)) is not None:
                self._file(program)
        for name in _LIBRARIES:
            self._library(name, ())
        for folder in _FOLDERS:
            self._folder(Path(folder))
        for folder in _TERMINFO:
            for name in _TERMINALS:
                self._data(Path(folder, name[0], name), f"/usr/share/terminfo/{name[0]}/{name}")
        self._etc()
        for named in add:
            host = path_to_add(named)
            for path in [host] if host.is_file() else sorted(filter(Path.is_file, host.rglob("*"))):
                self._file(path)
        _index_libraries(self._root, self._system_library)

    # ------------------------------------------------------------ Python
    def _python(self, extra: Mapping[str, Path]) -> None:
        home = self._root / PYTHON.lstrip("/")
        executable = Path(os.path.realpath(sys.executable))
        site = home / SITE
        site.mkdir(parents=True)
        (home / "bin").mkdir()
        copy(executable, home / "bin" / _VERSION)
        for alias in ("python", "python3"):
            (home / "bin" / alias).symlink_to(_VERSION)
            # Scripts expect it at this path. A relative link has the same target on the host as inside.
            (self._root / "usr" / "bin" / alias).symlink_to(f"../../opt/python/bin/{alias}")
        library = Path(sysconfig.get_path("stdlib"))
        for entry in sorted(library.iterdir()):
            if entry.name not in LEFT_OUT and not entry.name.startswith("config-"):
                copy(entry, home / "lib" / _VERSION / entry.name)
        (site.parent / "dist-packages").symlink_to("site-packages")  # Debian's own Python expects this name.
        for name, source in extra.items():
            copy(source, site / name)
        _compile(self._root, site)
        self._needs_of(executable)
        for module in (library / "lib-dynload").glob("*.so"):
            self._needs_of(module)

    # ------------------------------------------------------------ programs and libraries
    def _file(self, host: Path) -> None:
        """Add a program or library of the host with its dependencies, under its own path."""
        inside = _merge(str(host))
        if inside in self._placed:
            return
        self._place(host, inside)
        self._needs_of(host)
        with host.open("rb") as opened:
            first = opened.readline(256)
        if first.startswith(b"#!") and (words := first[2:].split()):
            interpreter = Path(os.fsdecode(words[0]))
            if interpreter.is_file() and "python" not in interpreter.name:
                self._file(interpreter)

    def _needs_of(self, host: Path) -> None:
        found = elf.needs(host)
        if found is None:
            return
        if found.interpreter and _merge(found.interpreter) not in self._placed:
            self._place(Path(found.interpreter), _merge(found.interpreter))
        for name in found.libraries:
            self._library(name, found.folders)

    def _library(self, name: str, own: Sequence[str]) -> None:
        prefix = _python_prefix()
        beside = [] if prefix is None else [prefix / "lib"]
        for folder in (*map(Path, own), *beside, *self._search):
            path = folder / name
            if os.path.isfile(path):  # Unlike Path.is_file, False if this user may not look.
                self._place_library(path, near=str(folder) in own)
                return

    def _place_library(self, path: Path, *, near: bool) -> None:
        """`near`: the program itself names the path, so the library must stay there."""
        own = _python_prefix()
        if own is not None and path.is_relative_to(own):
            inside = f"{PYTHON}/lib/{path.name}"
            self.own_libraries = True
        elif near:
            inside = _merge(os.path.normpath(path))
        else:
            inside = f"{self._system_library}/{path.name}"
        if inside not in self._placed:
            self._place(path, inside)
            self._needs_of(path)

    # ------------------------------------------------------------ data
    def _etc(self) -> None:
        for path in map(Path, _SERVICES):
            self._data(path, str(path))
        bundle = next((Path(path) for path in _CERTIFICATES if Path(path).is_file()), None)
        if bundle is None:
            return
        inside = _CERTIFICATES[0]
        self._data(bundle, inside)
        # Where OpenSSL looks, as built by Debian, Fedora and others.
        for place in ("usr/lib/ssl/cert.pem", "etc/ssl/cert.pem", "etc/pki/tls/certs/ca-bundle.crt"):
            link = self._root / place
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(inside)

    def _folder(self, host: Path) -> None:
        for folder, folders, files in os.walk(host):
            folders[:] = sorted(set(folders) - _NOT_ZONES)
            for name in sorted(set(files) - _NOT_ZONES):
                path = Path(folder, name)
                self._data(path, _merge(str(path)))

    def _data(self, host: Path, inside: str) -> None:
        if os.path.isfile(host) and inside not in self._placed:
            self._place(host, inside)

    def _place(self, host: Path, inside: str) -> None:
        target = self._root / inside.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        copy(host, target)
        self._placed.add(inside)
        info = host.stat()
        self.sources[str(host)] = (info.st_size, info.st_mtime_ns)


def path_to_add(named: str) -> Path:
    """The file or folder that the owner wants to add; a name without a slash is a program."""
    path = Path(named) if "/" in named else _program(named)
    if path is None:
        raise SandboxError(f"there is no program {named!r} here to add to the runtime")
    merged = _merge(os.path.abspath(path))
    if not merged.startswith(_ADDABLE) or f"{merged}/".startswith(f"{PYTHON}/") or not path.exists():
        raise SandboxError(
            f"{named} cannot be added to the runtime: name a program, or a file or folder below "
            f"{' or '.join(_ADDABLE)} that exists"
        )
    return Path(os.path.abspath(path))


def _program(name: str) -> Path | None:
    paths = (Path(folder, name) for folder in _PROGRAM_FOLDERS)
    return next((path for path in paths if path.is_file()), None)


def _merge(path: str) -> str:
    """`path` on a system whose /bin and /lib are links into /usr."""
    first = path.split("/")[1]
    return f"/usr{path}" if first in LINKS or first in ("lib32", "libx32") else path


def _library_folder(search: Sequence[Path]) -> str:
    """The folder of this system's C library, which the loader searches by default."""
    loader = (elf.needs(Path(os.path.realpath(sys.executable))) or elf.ElfNeeds()).interpreter
    home = next((folder for folder in search if (folder / "libc.so.6").is_file()), Path(loader).parent)
    return _merge(str(home)) if home.is_absolute() else "/usr/lib"


def _python_prefix() -> Path | None:
    """The interpreter's prefix, unless it belongs to the system."""
    prefix = Path(sys.base_prefix)
    return None if prefix == Path("/usr") else prefix


def copy(source: Path, target: Path) -> None:
    """Copy with times, so that byte code stays valid. Follows links and leaves out tests."""
    if source.is_dir():
        target.mkdir(exist_ok=True)
        for entry in sorted(source.iterdir()):
            if entry.name not in LEFT_OUT and ".opt-" not in entry.name:
                copy(entry, target / entry.name)
    elif source.is_file():
        shutil.copyfile(source, target)
        shutil.copystat(source, target)


def _compile(root: Path, site: Path) -> None:
    """Compile modules that lack byte code, because jobs cannot. The result must not depend on place and time."""
    for stale in site.rglob("*.pyc"):
        stale.unlink()
    compile_in = functools.partial(
        compileall.compile_dir,
        quiet=2,
        stripdir=str(root),
        prependdir="/",
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    compile_in(site)
    library = site.parent
    bare = [path for path in library.glob("*.py") if not any(library.glob(f"__pycache__/{path.stem}.*"))]
    if bare:
        compile_in(library, workers=0 if len(bare) > _MANY else 1)


def _index_libraries(root: Path, folder: str) -> None:
    """Build the cache of ldconfig, for programs that use it. Only root can; the loader works without it."""
    program = _program("ldconfig")
    if program is None or os.geteuid() != 0:
        return
    command = [str(program), "-X", "-i", "-r", str(root)]
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc" / "ld.so.conf").write_text(f"{folder}\n")
    subprocess.run(command, capture_output=True, check=False, timeout=60)


def open_to_all(root: Path) -> None:
    for _, folders, files, fd in os.fwalk(root):
        os.fchmod(fd, 0o755)
        for name in (*folders, *files):
            info = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if info.st_mode & 0o170000 == 0o100000:
                os.chmod(name, 0o755 if info.st_mode & 0o100 else 0o644, dir_fd=fd)


def files_of(source: Path) -> Iterator[Path]:
    """The files of a package, without byte code."""
    if source.is_file():
        yield source
        return
    if not source.is_dir():
        raise SandboxError(f"no such package for the jobs' Python: {source}")
    for folder, folders, files in os.walk(source):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT and name != "__pycache__")
        yield from (Path(folder) / name for name in sorted(files))
