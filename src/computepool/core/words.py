"""Numbers in sentences, said the same by the hub and the command line."""

from __future__ import annotations


def counted(number: int, one: str, many: str = "") -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def short_account(account_id: str) -> str:
    """An account whose name the reader may not know: enough of its id to tell it from others."""
    return f"account {account_id[-6:]}"
