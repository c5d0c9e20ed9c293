"""The meaning of a database error: a transient failure, an outage, a full disk, or the caller's mistake."""

from __future__ import annotations

import logging
import re

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, InterfaceError, OperationalError

from computepool.core.errors import BadRequest, Conflict, OutOfSpace, Unavailable

logger = logging.getLogger(__name__)

_TRANSIENT = {"40001", "40P01"}  # serialisation failure, deadlock
_DISK_FULL = "53100"
_READ_ONLY = "25006"  # connected to a standby
#: In SQLite's and in PostgreSQL's message.
_KEY_TAKEN = re.compile(r"jobs\.group_id, jobs\.key|uq_jobs_group_id_key")


class OutcomeUnknown(Unavailable):
    """The connection was lost during COMMIT, and it is not known whether the change was made."""


def is_transient(error: BaseException) -> bool:
    """Whether the same transaction may succeed if it is run again."""
    if not isinstance(error, DBAPIError):
        return False
    return error.connection_invalidated or _sqlstate(error) in _TRANSIENT


def is_outage(error: BaseException) -> bool:
    """Whether the database is unavailable, so that the next unit would only wait as long again."""
    if isinstance(error, OutcomeUnknown):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    state = _sqlstate(error)
    if state is None:
        # psycopg has no code for a server that it could not reach; SQLite has no outages.
        return isinstance(error, OperationalError) and hasattr(error.orig, "sqlstate")
    return state == _READ_ONLY or (state[:2] in {"08", "53"} and state != _DISK_FULL) or state[:3] == "57P"


def public_error(error: BaseException) -> BaseException:
    """The error to raise to the caller. Errors that do not come from the database, and our own bugs, stay as they are."""
    if not isinstance(error, DBAPIError):
        return error
    if "disk is full" in str(error.orig) or _sqlstate(error) == _DISK_FULL:
        return OutOfSpace("The hub's disk is full; nothing was changed. Free some space and try again.")
    if isinstance(error, IntegrityError):
        logger.warning("store.refused: %s", error)
        if _KEY_TAKEN.search(str(error.orig)):
            return Conflict("A job of the group has this key already; a key names one job of a group.", field="key")
        return Conflict("This already exists, or refers to something that is gone; nothing was changed.")
    if isinstance(error, DataError):
        logger.warning("store.refused: %s", error)
        return BadRequest("A value cannot be stored: a number is too large, or a text contains an invalid character.")
    if is_outage(error) or isinstance(error, OperationalError | InterfaceError):
        logger.error("store.failed: %s", error)
        return Unavailable("The hub's database cannot be reached; nothing was changed.", retry_after_s=1)
    return error


def _sqlstate(error: DBAPIError) -> str | None:
    state: str | None = getattr(error.orig, "sqlstate", None)
    return state
