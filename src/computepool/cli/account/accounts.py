"""`pool keys …` and `pool accounts …`: who may use the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from computepool.cli import output
from computepool.cli.options import Json, Limit, open_pool
from computepool.cli.references import OfAccount
from computepool.protocol.local_address import is_loopback

if TYPE_CHECKING:
    from computepool.protocol.accounts import AccountView, KeyView

keys = typer.Typer(no_args_is_help=True, help="API keys: for programs and other machines.")
accounts = typer.Typer(no_args_is_help=True, help="Accounts of this hub (for administrators).")


@keys.command("list")
def list_keys(
    *,
    account: OfAccount = None,
    everybody: Annotated[bool, typer.Option("--all", help="Of everybody (administrators).")] = False,
    sessions: Annotated[bool, typer.Option("--sessions", help="With the sessions of browsers.")] = False,
    limit: Limit = 100,
    json: Json = False,
) -> None:
    """List your keys; the keys themselves are never shown again.

    \b
    Examples:
      pool keys list
      pool keys list --account ann --sessions
    """
    pool = open_pool()
    found = pool.keys.list(limit=limit, account_id=account, everybody=everybody, sessions=sessions)
    if json:
        output.print_json(found)
        return
    rows = [
        (
            key.id,
            key.name,
            _state(key),
            "everything" if key.scopes is None else ", ".join(key.scopes),
            output.ago(key.created_at_ms),
            output.ago(key.last_used_ms),
            "never" if key.expires_at_ms is None else output.moment(key.expires_at_ms),
        )
        for key in found
    ]
    columns = ("ID", "NAME", "STATE", "FOR", "CREATED", "USED", "EXPIRES")
    output.print_table(columns, rows, empty="No keys.")


def _state(key: KeyView) -> str:
    from computepool.cli.clock import now_ms

    if key.revoked_at_ms:
        return "revoked"
    return "expired" if key.expires_at_ms is not None and key.expires_at_ms <= now_ms() else "active"


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    *,
    expires: Annotated[str | None, typer.Option(help="Valid for: 1h, 30d; default: for ever.")] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="read, submit, provide, account, admin; may be repeated. Default: what your key may."
        ),
    ] = None,
    account: OfAccount = None,
    json: Json = False,
) -> None:
    """Make a key. It is printed once: keep it. A key for less is a smaller loss when it leaks.

    \b
    Scopes, each of which includes `read`:
      read      look at jobs, nodes, credits; ask for quotes
      submit    submit and cancel jobs, send files
      provide   enrol nodes and say what they do
      account   keys, sessions and payouts
      admin     what administrators do

    \b
    Examples:
      pool keys create ci --scope submit --expires 30d
      COMPUTEPOOL_KEY=$(pool keys create nightly) python nightly.py
    """
    from computepool.sdk.client.sizes import seconds

    expires_in_s = None if expires is None else seconds(expires, what="expires")
    pool = open_pool()
    made = pool.keys.create(name, expires_in=expires_in_s, account_id=account, scopes=scope or None)
    if json:
        output.print_json(made)
        return
    output.say(made.key)
    output.note("This key is not shown again.")


@keys.command("rotate")
def rotate_key(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key to replace; see `pool keys list`.")],
    *,
    overlap: Annotated[str, typer.Option(help="How long the old one goes on working.")] = "24h",
    expires: Annotated[str | None, typer.Option(help="Valid for; default: as long as the old one.")] = None,
    json: Json = False,
) -> None:
    """Replace a key by a new one for the same; the old one ends after the overlap. Printed once: keep it.

    \b
    Examples:
      pool keys rotate 5f2c9a7e11d04b7a
      pool keys rotate 5f2c9a7e11d04b7a --overlap 1h --expires 90d
    """
    from computepool.sdk.client.sizes import seconds

    overlap_s = seconds(overlap, what="overlap")
    expires_in_s = None if expires is None else seconds(expires, what="expires")
    made = open_pool().keys.rotate(key_id, overlap=overlap_s, expires_in=expires_in_s)
    if json:
        output.print_json(made)
        return
    output.say(made.key)
    output.note(f"This key is not shown again. {key_id} works for another {overlap}.")


@keys.command("revoke")
def revoke_key(
    key_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID…]")] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Every key and browser session of yours but this key.")
    ] = False,
    account: OfAccount = None,
    json: Json = False,
) -> None:
    """Revoke keys; they stop working at once, on every hub of the pool.

    \b
    Examples:
      pool keys revoke 5f2c9a7e11d04b7a
      pool keys revoke --all                 sign out everywhere else
    """
    if everything == bool(key_ids) or (account is not None and not everything):
        raise typer.BadParameter("name the keys, or give --all.")
    pool = open_pool()
    if everything:
        ended = pool.keys.revoke_all(account_id=account)
        if json:
            output.print_json({"revoked": ended})
        else:
            output.say(f"Revoked {ended} keys and sessions.")
        return
    key_ids = key_ids or []
    for key_id in key_ids:
        pool.keys.revoke(key_id)
    if json:
        output.print_json({"revoked": key_ids})
    else:
        for key_id in key_ids:
            output.say(f"revoked {key_id}")


@accounts.command("list")
def list_accounts(*, limit: Limit = 100, json: Json = False) -> None:
    """List accounts, with the conduct of their jobs on nodes of others: from 0 to 1, 0.71 while nothing is known.

    \b
    Examples:
      pool accounts list
    """
    found = open_pool().accounts.list(limit=limit)
    if json:
        output.print_json(found)
        return
    rows = [
        (a.id, a.name, ", ".join(a.roles), _submitter_reputation(a), output.ago(a.created_at_ms))
        for a in found
    ]
    output.print_table(("ID", "NAME", "ROLES", "CONDUCT", "CREATED"), rows, empty="No accounts.")


def _submitter_reputation(account: AccountView) -> str:
    known = account.conduct
    if known is None or known.changed_at_ms is None:
        return ""
    return f"{known.score:.2f} ({known.completed} done, {known.harmful} stopped at a limit)"


@accounts.command("roles")
def set_roles(
    account: Annotated[str, typer.Argument(metavar="NAME", help="Its name or id.")],
    *,
    role: Annotated[list[str], typer.Option(help="admin, submitter, provider; may be repeated.")],
    json: Json = False,
) -> None:
    """Set an account's roles: exactly those named. May need a second administrator (`pool approvals`).

    \b
    Examples:
      pool accounts roles ann --role submitter --role provider
      pool accounts roles bob --role admin
    """
    pool = open_pool()
    found = pool.accounts.set_roles(pool.accounts.find(account).id, role)
    if json:
        output.print_json(found)
    elif found.approval_id:
        output.say(f"{found.approval_id} waits for a second administrator: pool approvals list")
    else:
        output.say(f"{found.name}: {', '.join(found.roles)}")


@accounts.command("link")
def make_link(
    account: Annotated[str, typer.Argument(metavar="NAME", help="Its name or id.")], *, json: Json = False
) -> None:
    """Make a one-time sign-in link for somebody. Whoever opens it is that account: hand it over in private.

    \b
    Examples:
      pool accounts link ann
    """
    pool = open_pool()
    made = pool.accounts.link(pool.accounts.find(account).id)
    if json:
        output.print_json(made)
        return
    output.say(made.link)
    output.note(f"Good once, before {output.moment(made.expires_at_ms)}.")
    if is_loopback(made.link):
        output.note(
            "Warning: only the hub's own machine opens it. For others, start the hub with --host 0.0.0.0, or --public-url."
        )


@accounts.command("quota")
def set_quota(
    account: Annotated[str, typer.Argument(metavar="NAME", help="Its name or id.")],
    *,
    jobs: Annotated[int | None, typer.Option(help="Unfinished jobs at once.")] = None,
    spend: Annotated[str | None, typer.Option(metavar="CREDITS", help="Credits a day.")] = None,
    files: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Files kept at the hub: 500MB, 2TiB.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long files are kept after their job ended: 30d.")
    ] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="What is not named follows the hub's own limits again.")
    ] = False,
    json: Json = False,
) -> None:
    """Set how much an account may use. Only what is named changes; nothing named: show it.

    \b
    Examples:
      pool accounts quota ann --jobs 100 --spend 250
      pool accounts quota ann --files 50GB --keep 30d
      pool accounts quota ann --clear
    """
    from computepool.core.money.money import parse_credits
    from computepool.sdk.client.sizes import byte_count, seconds

    pool = open_pool()
    named = {
        "jobs_open_max": jobs,
        "spend_per_day_max": None if spend is None else parse_credits(spend, field="--spend"),
        "artifact_bytes_max": None if files is None else byte_count(files, what="--files"),
        "artifact_keep_s": None if keep is None else round(seconds(keep, what="--keep")),
    }
    named = {name: value for name, value in named.items() if value is not None}
    found = pool.accounts.find(account)
    if clear or named:
        kept = {} if clear else {name: getattr(found, name) for name in _QUOTAS}
        quotas = {**kept, **named}
        keep_s = quotas.pop("artifact_keep_s", None)
        found = pool.accounts.set_quotas(found.id, artifact_keep=keep_s, **quotas)
    if json:
        output.print_json(found)
    else:
        output.say(_quotas(found))


_QUOTAS = ("jobs_open_max", "spend_per_day_max", "artifact_bytes_max", "artifact_keep_s")


def _quotas(account: AccountView) -> str:
    from computepool.core.money.money import format_credits

    jobs, spend, files, keep_s = (getattr(account, name) for name in _QUOTAS)
    most = "as many as the hub lets" if jobs is None else f"{jobs:,}"
    cost = "as many as the hub lets" if spend is None else format_credits(spend)
    size = "as much as the hub lets" if files is None else output.size(files)
    time = "as long as the hub says" if keep_s is None else f"for {output.span(keep_s * 1000)}"
    return f"{account.name}: unfinished jobs: {most}; credits a day: {cost}; files: {size}, kept {time}"


@accounts.command("create")
def create_account(
    name: Annotated[str, typer.Argument(help="Its name.")],
    *,
    role: Annotated[
        list[str] | None, typer.Option(help="admin, submitter, provider; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Create an account; let its owner in with `pool accounts link NAME`.

    \b
    Examples:
      pool accounts create ann
      pool accounts create lab-7 --role provider
    """
    made = open_pool().accounts.create(name, roles=role or None)
    if json:
        output.print_json(made)
        return
    output.say(made.id)
    output.note(f"Created {made.name} ({', '.join(made.roles)}). Next: pool accounts link {made.name}")
    if made.approval_id:
        output.note(
            f"Its first credits wait for a second administrator ({made.approval_id}): pool approvals list"
        )
