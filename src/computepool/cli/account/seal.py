"""`pool seal`: manage the keys that results are encrypted to, and decrypt files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, BadParameter, Option, Typer, prompt

from computepool.cli import output
from computepool.cli.options import ask_passphrase
from computepool.core.errors import BadRequest
from computepool.sdk.client.config import readable_file
from computepool.sdk.files import sealing

app = Typer(no_args_is_help=True)


@app.command("init")
def init(
    *,
    passphrase: Annotated[bool, Option("--passphrase", help="Protect the key with a passphrase.")] = False,
    replace: Annotated[bool, Option("--replace", help="Replace the current key with a new one.")] = False,
    always: Annotated[bool, Option("--always", help="Seal every job by default.")] = False,
) -> None:
    """Create your key pair for sealing. Back it up: without it, sealed results cannot be opened.

    Examples:
      pool seal init
      pool seal init --passphrase --always
      pool seal export > my-seal-keys.json
    """
    words = prompt("Passphrase", hide_input=True, confirmation_prompt=True) if passphrase else ""
    made = sealing.init(passphrase=words, replace_current=replace, always=True if always else None)
    output.show(
        {"public": made.public, "fingerprint": made.fingerprint, "path": str(sealing.key_path())},
        f"key {made.fingerprint} in {sealing.key_path()}",
        hint="Back it up in a safe place: pool seal export. Seal a job: pool submit --seal …",
    )


@app.command("show")
def show() -> None:
    """List your sealing keys, current one first, and whether jobs are sealed by default.

    Examples:
      pool seal show
    """
    file = sealing.load()
    keys = [{"public": key.public, "fingerprint": key.fingerprint, "passphrase": key.locked} for key in file.keys]
    if output.print_json({"keys": keys, "always": file.always}):
        return
    rows = [
        (key.fingerprint, "current" if at == 0 else "old", "yes" if key.locked else "no", key.public)
        for at, key in enumerate(file.keys)
    ]
    output.print_table(("KEY", "STATE", "PASSPHRASE", "PUBLIC"), rows, empty="No key yet: pool seal init")
    if file.always:
        output.note("Every job is sealed unless you pass --no-seal. Change that: pool seal always off")


@app.command("always")
def always(
    setting: Annotated[str, Argument(metavar="on|off", help="on: seal by default; off: only with --seal.")],
) -> None:
    """Choose whether jobs are sealed by default, or only with --seal.

    Examples:
      pool seal always on
    """
    if setting not in ("on", "off"):
        raise BadParameter("use on or off.")
    sealing.set_always(setting == "on")
    output.show({"always": setting == "on"}, "")


@app.command("export")
def export() -> None:
    """Print your keys as JSON, for a backup or another machine. Anyone who has them can read your results.

    Examples:
      pool seal export > my-seal-keys.json
    """
    file = sealing.load()
    if not file.keys:
        raise BadRequest("There is no key to export. Create one: pool seal init")
    output.write_line(sealing.as_json(file).rstrip())


@app.command("import")
def import_keys(file: Annotated[Path, Argument(metavar="FILE", help="Output of `pool seal export`.")]) -> None:
    """Import keys from another machine. An existing key stays the current one.

    Examples:
      pool seal import my-seal-keys.json
    """
    kept = sealing.add(readable_file(file).read_text())
    output.show(
        {"keys": [key.fingerprint for key in kept.keys]},
        f"{len(kept.keys)} key{'' if len(kept.keys) == 1 else 's'}; current: {kept.keys[0].fingerprint}",
    )


@app.command("open")
def open_files(
    files: Annotated[list[Path], Argument(metavar="FILE…", help="Sealed files.")],
    *,
    out: Annotated[Path | None, Option(metavar="PATH", help="Destination; a folder for several files.")] = None,
    in_place: Annotated[bool, Option("--in-place", help="Replace each file with its decrypted content.")] = False,
) -> None:
    """Decrypt local sealed files, such as those delivered to a home node or fetched with --raw.

    Examples:
      pool seal open model.bin --out model.plain
      pool seal open home/*/files/* --in-place
    """
    sealing.ask_passphrase[:] = [ask_passphrase]
    if (out is None) is not in_place:
        raise BadParameter("pass either --out PATH or --in-place.")
    opened = []
    for file in files:
        source = readable_file(file)
        target = source if out is None else out / source.name if out.is_dir() or len(files) > 1 else out
        target.parent.mkdir(parents=True, exist_ok=True)
        about = sealing.open_file(source, target)
        opened.append({"file": str(source), "opened": str(target), "was": str(about)})
        if not output.as_json():
            output.note(f"{source.name} was {about}")
            output.write_line(str(target))
    output.print_json(opened)
