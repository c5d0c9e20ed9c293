"""`pool seal`: your keys for sealing, and what was sealed to them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from computepool.cli import output
from computepool.cli.options import Json, ask_passphrase

app = typer.Typer(no_args_is_help=True, help="Encrypt what jobs bring back to a key that only you have.")


def fingerprint(public: str) -> str:
    from computepool.protocol import sealing

    return sealing.key_id(sealing.public_bytes(public)).hex()


@app.command("init")
def init(
    *,
    passphrase: Annotated[
        bool, typer.Option("--passphrase", help="Ask for a passphrase for the key.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Use a new key from now on.")] = False,
    always: Annotated[
        bool, typer.Option("--always", help="Seal every job that does not say otherwise.")
    ] = False,
    json: Json = False,
) -> None:
    """Make your key pair for sealing. Keep a copy: without it nobody can open what was sealed to it.

    \b
    Examples:
      pool seal init
      pool seal init --passphrase --always
      pool seal export > my-seal-keys.json
    """
    from computepool.sdk.files import sealing

    words = typer.prompt("Passphrase", hide_input=True, confirmation_prompt=True) if passphrase else ""
    made = sealing.init(passphrase=words, replace_current=replace, always=True if always else None)
    if json:
        output.print_json(
            {"public": made.public, "fingerprint": made.fingerprint, "path": str(sealing.key_path())}
        )
        return
    output.say(f"key {made.fingerprint} in {sealing.key_path()}")
    output.note("Keep a copy in a safe place: pool seal export. Seal a job: pool submit --seal …")


@app.command("show")
def show(*, json: Json = False) -> None:
    """List your keys for sealing, the current one first, and whether every job is sealed.

    \b
    Examples:
      pool seal show
    """
    from computepool.sdk.files import sealing

    file = sealing.load()
    if json:
        keys = [
            {"public": key.public, "fingerprint": key.fingerprint, "passphrase": key.locked}
            for key in file.keys
        ]
        output.print_json({"keys": keys, "always": file.always})
        return
    rows = [
        (key.fingerprint, "current" if at == 0 else "old", "yes" if key.locked else "no", key.public)
        for at, key in enumerate(file.keys)
    ]
    output.print_table(("KEY", "STATE", "PASSPHRASE", "PUBLIC"), rows, empty="No key yet: pool seal init")
    if file.always:
        output.note("Every job is sealed, unless it says --no-seal. Change that: pool seal always off")


@app.command("always")
def always(wanted: Annotated[str, typer.Argument(metavar="on|off")], *, json: Json = False) -> None:
    """Seal every job that does not say otherwise, or only those that say --seal.

    \b
    Examples:
      pool seal always on
    """
    from computepool.sdk.files import sealing

    if wanted not in ("on", "off"):
        raise typer.BadParameter("say on or off.")
    sealing.set_always(wanted == "on")
    if json:
        output.print_json({"always": wanted == "on"})


@app.command("export")
def export(*, json: Json = False) -> None:
    """Print your keys as JSON, for a safe place or another machine. Whoever has them can read your results.

    \b
    Examples:
      pool seal export > my-seal-keys.json
    """
    from computepool.core.errors import BadRequest
    from computepool.sdk.files import sealing

    file = sealing.load()
    if not file.keys:
        raise BadRequest("There is no key to export: make one with `pool seal init`.")
    output.say(sealing.as_json(file).rstrip())


@app.command("import")
def import_keys(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `pool seal export` printed.")],
    *,
    json: Json = False,
) -> None:
    """Take over keys from another machine; a key that is here stays the current one.

    \b
    Examples:
      pool seal import my-seal-keys.json
    """
    from computepool.sdk.files import sealing
    from computepool.sdk.jobs.options import readable_file

    kept = sealing.add(readable_file(file).read_text())
    if json:
        output.print_json({"keys": [key.fingerprint for key in kept.keys]})
        return
    output.say(
        f"{len(kept.keys)} key{'' if len(kept.keys) == 1 else 's'}; current: {kept.keys[0].fingerprint}"
    )


@app.command("open")
def open_files(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Sealed files, such as a home's.")],
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Where to; a folder if there are several.")
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Replace each file by what was sealed in it.")
    ] = False,
    json: Json = False,
) -> None:
    """Open sealed files that lie here: those that came home with a group, or were fetched with --raw.

    \b
    Examples:
      pool seal open model.bin --out model.plain
      pool seal open home/*/files/* --in-place
    """
    from computepool.sdk.files import sealing
    from computepool.sdk.jobs.options import readable_file

    sealing.ask_passphrase[:] = [ask_passphrase]
    if (out is None) is not in_place:
        raise typer.BadParameter("say --out PATH or --in-place.")
    opened = []
    for file in files:
        source = readable_file(file)
        target = source if out is None else out / source.name if out.is_dir() or len(files) > 1 else out
        target.parent.mkdir(parents=True, exist_ok=True)
        said = sealing.open_file(source, target)
        opened.append({"file": str(source), "opened": str(target), "was": said})
        if not json:
            output.note(f"{source.name} was {said}")
            output.say(str(target))
    if json:
        output.print_json(opened)
