"""Bases of all wire models: requests refuse unknown fields, replies ignore them (a newer hub may say more)."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from computepool.core.money.money import AMOUNT_MAX
from computepool.core.plaintext import NAME_PATTERN

NAME_MAX = 200
TEXT_MAX = 8_192
LIST_MAX = 1_000

#: A label a person chose: no control characters, bounded. Also what was stored under earlier rules.
Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_MAX, pattern=r"^[^\x00-\x1f\x7f]+$")]
#: A new one: nothing in it that a terminal obeys, or that shows it as another.
NewName = Annotated[str, StringConstraints(min_length=1, max_length=NAME_MAX, pattern=NAME_PATTERN)]
Tag = Annotated[
    str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/+-]*$")
]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Id = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
Region = Annotated[str, StringConstraints(max_length=32, pattern=r"^[A-Za-z-]*$")]
Count = Annotated[int, Field(ge=0, le=2**53)]
#: Microcredits. Strict: neither 1.0 nor "1" nor true is an amount.
Micro = Annotated[int, Field(strict=True, ge=0, le=AMOUNT_MAX)]
PositiveMicro = Annotated[int, Field(strict=True, gt=0, le=AMOUNT_MAX)]


class Request(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def empty_list(*, max_length: int) -> Any:
    """The default of a list in a message that comes often: a shared one would be copied deeply for each message."""
    return Field(default_factory=list, max_length=max_length, json_schema_extra={"default": []})


class Reply(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    @classmethod
    def trusted(cls, **fields: Any) -> Self:
        """Of all its fields, not validated: much quicker than `model_construct`, which looks at each one for a default."""
        made = cls.__new__(cls)
        object.__setattr__(made, "__dict__", fields)
        object.__setattr__(made, "__pydantic_fields_set__", set(fields))
        object.__setattr__(made, "__pydantic_extra__", None)
        object.__setattr__(made, "__pydantic_private__", None)
        return made

    @classmethod
    def from_attributes(cls, source: object, /, **more: Any) -> Self:
        """What `source` has under the same names, and `more`, which goes before."""
        shared = {name: getattr(source, name) for name in cls.model_fields if hasattr(source, name)}
        return cls(**{**shared, **more})


class Page(Reply):
    """Cursor page: ask again with `after=next` until `next` is null."""

    next: str | None = None
