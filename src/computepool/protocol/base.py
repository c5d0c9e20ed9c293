"""Base classes and types of all wire models. Requests refuse unknown fields; replies ignore them, because newer hubs add some."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from computepool.core.money.money import AMOUNT_MAX
from computepool.core.plaintext import NAME_PATTERN

#: Version of the wire protocol. A hub refuses agents and clients with another number.
PROTOCOL = 1
NAME_MAX = 200
TEXT_MAX = 8_192
LIST_MAX = 1_000

#: A name that a person chose, without control characters. Includes names that were stored under earlier rules.
Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_MAX, pattern=r"^[^\x00-\x1f\x7f]+$")]
#: A new name: nothing that a terminal obeys, or that makes it look like another name.
NewName = Annotated[str, StringConstraints(min_length=1, max_length=NAME_MAX, pattern=NAME_PATTERN)]
Tag = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/+-]*$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Id = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
#: Made with a node's Ed25519 key, in base64url without padding.
Signature = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{86}$")]
Region = Annotated[str, StringConstraints(max_length=32, pattern=r"^[A-Za-z-]*$")]
Count = Annotated[int, Field(ge=0, le=2**53)]
#: Microcredits. Strict: 1.0, "1" and true are not amounts.
Micro = Annotated[int, Field(strict=True, ge=0, le=AMOUNT_MAX)]
PositiveMicro = Annotated[int, Field(strict=True, gt=0, le=AMOUNT_MAX)]


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def empty_list(*, max_length: int) -> Any:
    """The default for a list in a frequent message; pydantic would deep-copy a shared list for each message."""
    return Field(default_factory=list, max_length=max_length, json_schema_extra={"default": []})


class Reply(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    @classmethod
    def from_trusted(cls, **fields: Any) -> Self:
        """Create a reply from all of its fields without validation. Much faster than `model_construct`, which checks each
        field for a default.
        """
        made = cls.__new__(cls)
        object.__setattr__(made, "__dict__", fields)
        object.__setattr__(made, "__pydantic_fields_set__", set(fields))
        object.__setattr__(made, "__pydantic_extra__", None)
        object.__setattr__(made, "__pydantic_private__", None)
        return made

    @classmethod
    def from_attributes(cls, source: object, /, **more: Any) -> Self:
        """Create a reply from the attributes of `source` with the same names, and from `more`, which takes precedence."""
        shared = {name: getattr(source, name) for name in cls.model_fields if hasattr(source, name)}
        return cls(**{**shared, **more})


class Page(Reply):
    """Cursor page: request with `after=next` until `next` is null."""

    next: str | None = None
