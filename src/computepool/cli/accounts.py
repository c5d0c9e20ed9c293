"""`pool keys …` and `pool accounts …`: who may use the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from computepool.cli import output
from computepool.cli.options import Json, Limit, open_pool

if TYPE_CHECKING:
    from computepool.protocol.accounts import AccountView

keys = typer.Typer(no_args_is_help=True, help="API keys: for programs and other machines.")
accounts = typer.Typer(no_args_is_help=True, help="Accounts of this hub (for administrators).")


@keys.command("list")
def list_keys(*, limit: Limit = 100, json: Json = False) -> None:
    """List your keys; the keys themselves are never shown again.

    \b
    Examples:
      pool keys list
    """
    found = open_pool().keys.list(limit=limit)
    if json:
        output.print_json(found)
        return
    rows = [
        (
            key.id,
            key.name,
            "revoked" if key.revoked_at_ms else "active",
            output.ago(key.created_at_ms),
            output.ago(key.last_used_ms),
            "" if key.expires_at_ms is None else output.moment(key.expires_at_ms),
        )
        for key in found
    ]
    output.print_table(("ID", "NAME", "STATE", "CREATED", "USED", "EXPIRES"), rows, empty="No keys.")


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    *,
    expires: Annotated[str | None, typer.Option(help="Valid for: 1h, 30d; default: for ever.")] = None,
    account: Annotated[str | None, typer.Option(help="For this account (administrators).")] = None,
    json: Json = False,
) -> None:
    """Make a key. It is printed once: keep it.

    \b
    Examples:
      pool keys create ci --expires 30d
      COMPUTEPOOL_KEY=$(pool keys create nightly) python nightly.py
    """
    from computepool.sdk.sizes import seconds

    expires_in_s = None if expires is None else seconds(expires, what="expires")
    made = open_pool().keys.create(name, expires_in_s=expires_in_s, account_id=account)
    if json:
        output.print_json(made)
        return
    output.say(made.key)
    output.note("This key is not shown again.")


@keys.command("revoke")
def revoke_key(key_ids: Annotated[list[str], typer.Argument(metavar="ID…")], *, json: Json = False) -> None:
    """Revoke keys; they stop working at once.

    \b
    Examples:
      pool keys revoke 5f2c9a7e11d04b7a
    """
    pool = open_pool()
    for key_id in key_ids:
        pool.keys.revoke(key_id)
    if json:
        output.print_json({"revoked": key_ids})
    else:
        for key_id in key_ids:
            output.say(f"revoked {key_id}")


@accounts.command("list")
def list_accounts(*, limit: Limit = 100, json: Json = False) -> None:
    """List accounts.

    \b
    Examples:
      pool accounts list
    """
    found = open_pool().accounts.list(limit=limit)
    if json:
        output.print_json(found)
        return
    rows = [(a.id, a.name, ", ".join(a.roles), output.ago(a.created_at_ms)) for a in found]
    output.print_table(("ID", "NAME", "ROLES", "CREATED"), rows, empty="No accounts.")


@accounts.command("quota")
def set_quota(
    account: Annotated[str, typer.Argument(metavar="NAME", help="Its name or id.")],
    *,
    jobs: Annotated[int | None, typer.Option(help="Unfinished jobs at once.")] = None,
    spend: Annotated[str | None, typer.Option(metavar="CREDITS", help="Credits a day.")] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="What is not named follows the hub's own limits again.")
    ] = False,
    json: Json = False,
) -> None:
    """Set how much an account may use. Only what is named changes; nothing named: show it.

    \b
    Examples:
      pool accounts quota ann --jobs 100 --spend 250
      pool accounts quota ann --spend 1000
      pool accounts quota ann --clear
    """
    from computepool.core.money import parse_credits

    pool = open_pool()
    limit = None if spend is None else parse_credits(spend, field="--spend")
    found = pool.accounts.find(account)
    if clear or jobs is not None or limit is not None:
        kept = (None, None) if clear else (found.jobs_open_max, found.spend_per_day_max)
        found = pool.accounts.set_quotas(
            found.id,
            jobs_open_max=kept[0] if jobs is None else jobs,
            spend_per_day_max=kept[1] if limit is None else limit,
        )
    if json:
        output.print_json(found)
    else:
        output.say(_quotas(found))


def _quotas(account: AccountView) -> str:
    from computepool.core.money import format_credits

    jobs, spend = account.jobs_open_max, account.spend_per_day_max
    most = "the hub's limit" if jobs is None else f"{jobs:,}"
    cost = "the hub's limit" if spend is None else f"{format_credits(spend)} credits"
    return f"{account.name}: unfinished jobs {most}, a day {cost}"


@accounts.command("create")
def create_account(
    name: Annotated[str, typer.Argument(help="Its name.")],
    *,
    role: Annotated[
        list[str] | None, typer.Option(help="admin, submitter, provider; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Create an account; give its owner a key with `pool keys create --account ID`.

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
    output.note(
        f"Created {made.name} ({', '.join(made.roles)}). Next: pool keys create first --account {made.id}"
    )
