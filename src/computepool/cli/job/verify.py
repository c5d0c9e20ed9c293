"""`pool jobs receipt` and `pool verify`: signed proof of a job's cost, and its verification without a hub."""

from __future__ import annotations

import json as json_text
import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from computepool.cli import output
from computepool.cli.options import JobId, open_pool
from computepool.core.errors import BadRequest
from computepool.sdk.client.config import load_config, readable_file, save_hub_keys, stored_hub_keys

_SIZE_MAX = 1024 * 1024


def receipt(
    job_id: JobId,
    *,
    out: Annotated[
        Path | None, Option("--output", "-o", metavar="FILE", help="Write to this file. Default: standard output.")
    ] = None,
) -> None:
    """Download the signed receipt of a paid job.

    Examples:
      pool jobs receipt job_01h… -o receipt.json
      pool jobs receipt job_01h… | pool verify -
    """
    pool = open_pool()
    document = json_text.loads(pool.credits.receipt(job_id))
    # Keep the hub's keys for verification. Once there are some, new ones must be signed by them.
    url = pool.transport.url
    save_hub_keys(url, pool.accounts.hub_keys(pinned=stored_hub_keys(url)))
    text = json_text.dumps(document, indent=2) + "\n"
    if out is None or output.as_json():
        output.write_line(text.rstrip())
    if out is not None:
        out.write_text(text)
        output.note(f"Wrote {out}. Verify it, even offline: pool verify {out}")


def verify(
    file: Annotated[Path, Argument(metavar="FILE", help="Receipt; - for standard input.")],
    *,
    key: Annotated[
        str | None, Option(metavar="KEY", help="Public key of the hub. Default: the one stored at sign-in.")
    ] = None,
) -> None:
    """Verify a receipt offline. Checks its signature, arithmetic and ledger rows.

    Exits with 1 if a check fails, or if the hub's key is unknown: anyone can sign with a key of their own.

    Examples:
      pool verify receipt.json
      pool verify receipt.json --key 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo
    """
    from computepool.cli.job import receipt_check

    document = _read(file)
    trusted = load_config().hub_keys if key is None else {document["receipt"]["kid"]: key}
    checks = receipt_check.check(document, trusted=trusted)
    good = all(found.ok for found in checks)
    proven = good and bool(trusted)
    listed = [{"ok": found.ok, "text": found.text} for found in checks]
    if not output.print_json({"ok": proven, "key_known": bool(trusted), "checks": listed}):
        for found in checks:
            output.write_line(f"{'ok' if found.ok else 'WRONG'}\t{found.text}")
        _conclude(good, known=bool(trusted))
    if not proven:
        raise Exit(1)


def _conclude(good: bool, *, known: bool) -> None:
    if not good:
        output.note("Do not trust this receipt.")
    elif known:
        output.note("All checks passed.")
    else:
        output.note(
            "All checks passed, but anyone could have signed this receipt: its key is not known. Get the hub's key from "
            "the hub (`pool login`, or GET /api/v1/hub/keys) and pass it with --key."
        )


def _read(file: Path) -> dict[str, Any]:
    """The receipt in this file; BadRequest if it is something else."""
    from pydantic import ValidationError

    from computepool.protocol.money.receipts import SignedReceipt
    from computepool.protocol.tokens import unique_fields

    try:
        if str(file) == "-":
            text = sys.stdin.read(_SIZE_MAX)
        else:
            with readable_file(file, what="receipt").open() as opened:
                text = opened.read(_SIZE_MAX)
        document = json_text.loads(text, object_pairs_hook=unique_fields)
        SignedReceipt.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadRequest(f"{file} is not a receipt: {where}: {first['msg']}.") from None
    except ValueError as error:
        raise BadRequest(f"{file} is not a receipt: {error}.") from None
    if not isinstance(document, dict):
        raise BadRequest(f"{file} is not a receipt.")
    return document
