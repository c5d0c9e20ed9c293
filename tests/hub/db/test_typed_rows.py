"""A row type must match the columns it is read from, or the hub does not start."""

from __future__ import annotations

import pytest

from computepool.hub.db.tables import accounts, nodes
from computepool.hub.db.typed_rows import TypedRow


class Name(TypedRow, of=accounts):
    id: str
    name: str


class Owner(Name, of=nodes.c.id.label("node_id")):
    node_id: str


def test_a_row_has_the_columns_of_its_fields_in_order() -> None:
    assert [str(column) for column in Name.select().selected_columns] == ["accounts.id", "accounts.name"]
    assert list(Owner.columns) == ["id", "name", "node_id"]
    row = Owner.all([("acc_1", "ann", "node_1")])[0]
    assert (row.id, row.name, row.node_id) == ("acc_1", "ann", "node_1")
    assert row._asdict() == {"id": "acc_1", "name": "ann", "node_id": "node_1"}


def test_a_row_is_immutable() -> None:
    row = Name(id="acc_1", name="ann")
    with pytest.raises(AttributeError):
        row.name = "bob"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        row.other = "bob"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("field", "kind", "complaint"),
    [
        ("nickname", "str", "no column of this name"),
        ("created_at_ms", "str", "the column holds int"),
        ("floor", "int", r"the column holds int \| None"),
        ("name", "str | None", "the column holds str"),
    ],
)
def test_a_field_that_does_not_match_its_column_is_refused(field: str, kind: str, complaint: str) -> None:
    with pytest.raises(TypeError, match=complaint):
        type(TypedRow)("Wrong", (TypedRow,), {"__annotations__": {field: kind}}, of=accounts)
