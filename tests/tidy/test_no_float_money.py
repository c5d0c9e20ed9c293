"""No path of money uses floats: not the code, not a column, not the wire."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from sqlalchemy import BigInteger, Float, Numeric

import computepool.protocol
from computepool.core.money.money import AMOUNT_MAX
from computepool.hub.db.money_tables import metadata
from computepool.hub.settings import Settings
from computepool.protocol.base import Request
from tests.tidy.tree import SRC, name, tree

#: Where amounts are made, moved and shown.
PATHS = (
    *(
        "core/money/money.py",
        "core/money/pricing.py",
        "core/money/ledger.py",
        "core/money/market.py",
        "core/fleet/row_prices.py",
    ),
    *("core/money/terms.py", "core/money/payouts.py", "core/money/bills.py", "core/money/demand.py"),
    *("hub/money/booking.py", "hub/money/ledger_rows.py", "hub/money/price_rows.py", "hub/db/money_tables.py"),
    *("hub/money/payouts/rows.py", "hub/money/market/rows.py", "hub/observability/consistency/money.py"),
    "hub/observability/consistency/payouts.py",
    *("hub/money/holds.py", "hub/money/new_accounts.py", "hub/jobs/quotas.py", "hub/submission/quotes.py"),
    *("hub/submission/quote_messages.py", "hub/money/costs.py", "hub/money/credits.py", "hub/money/prices.py"),
    *("hub/money/csv_files.py", "hub/money/statements.py", "hub/money/receipts.py", "hub/money/payouts/payouts.py"),
    *("hub/money/payouts/payout_rounds.py", "hub/money/market/spot_prices.py", "hub/money/market/market_view.py"),
    *("hub/nodes/owner/price_floors.py", "hub/nodes/owner/earnings.py"),
    "hub/money/banks/*.py",
    *("hub/money/routes.py", "hub/money/payouts/routes.py", "hub/money/market/routes.py"),
    *("sdk/client/amounts.py", "sdk/resources/credits.py", "sdk/resources/market.py", "sdk/resources/payouts.py"),
    *(
        "cli/account/credits.py",
        "cli/account/market.py",
        "cli/account/payouts.py",
        "cli/account/prices.py",
        "cli/job/submit.py",
    ),
    *("cli/job/receipt_check.py", "cli/job/verify.py"),
)
#: What is a float there, and is not money.
ALLOWED: dict[str, set[str]] = {
    "hub/money/payouts/payouts.py": {"row.created_at_ms / 1000"},  # a date
    "hub/money/market/market_view.py": {"spot_prices.tick_ms(hub) / 1000"},  # a length of time
    "sdk/client/amounts.py": {"float", "Decimal"},  # named to be refused, and to be read exactly
    "cli/job/submit.py": {"0.75", "out / str(result.item)"},  # how similar two options are, and a path
    "sdk/resources/market.py": {"float"},  # times in seconds
    # A percentage and a number of units, for the eye, and times in seconds.
    "cli/account/market.py": {"tenths / 10", "thousandths / 1000", "begin_ms / 1000", "step_ms / 1000"},
}
#: A length of time in seconds may become whole milliseconds; its name says what it is.
SECONDS = re.compile(r"(round|math\.ceil)\([^/]*(_s|seconds\([^/]*\)|timestamp\(\)) \* 1000\)")
FLOATING = {"float", "float16", "float32", "float64", "Decimal", "Fraction", "round", "mean", "average"}


def paths() -> list[Path]:
    found = {pattern: sorted(SRC.glob(pattern)) for pattern in PATHS}
    assert not [pattern for pattern, files in found.items() if not files]
    return [path for files in found.values() for path in files]


def floats(module: ast.AST) -> Iterator[ast.expr | ast.AugAssign]:
    """Every place where something that is not a whole number could come from."""
    for node in ast.walk(module):
        match node:
            case ast.Constant(value=float() | complex()):
                yield node
            case ast.BinOp(op=ast.Div()) | ast.AugAssign(op=ast.Div()):
                yield node
            case ast.BinOp(op=ast.Pow(), right=ast.UnaryOp()):
                yield node
            case ast.Name() | ast.Attribute() if _last_word(node) in FLOATING:
                yield node


def _last_word(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def seconds(module: ast.AST) -> Iterator[ast.AST]:
    """What belongs to lengths of time: `round(x_s * 1000)`, and `x_s: float`."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and SECONDS.fullmatch(ast.unparse(node)):
            yield from ast.walk(node)
        elif isinstance(node, ast.arg) and node.arg.endswith("_s") and node.annotation is not None:
            yield from ast.walk(node.annotation)
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.target).endswith("_s"):
            yield from ast.walk(node)


def found_in(source: ast.AST) -> list[tuple[int, str]]:
    excused = set(map(id, seconds(source)))
    return sorted({(node.lineno, ast.unparse(node)) for node in floats(source) if id(node) not in excused})


@pytest.mark.parametrize("path", paths(), ids=name)
def test_money_is_computed_in_whole_numbers(path: Path) -> None:
    allowed = ALLOWED.get(str(path.relative_to(SRC)), set())
    found = found_in(tree(path))
    assert [words for words in found if words[1] not in allowed] == []
    assert allowed <= {words for _, words in found}, "what is allowed and no longer there must go"


FAULTS = [
    *("fee = charge * 0.2", "fee = charge / 5", "fee /= 5", "fee = float(charge)", "fee = round(charge)"),
    *("fee = Decimal(charge)", "x: float = 1", "fee = charge * 10 ** -6", "fee = prices.mean()", "fee = 1e6"),
    *("fee = numpy.float64(1)", "def fee(charge: float): ...", "fee = map(float, charges)", "fee = round(a_s)"),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_the_check_bites(fault: str) -> None:
    assert found_in(ast.parse(fault))


@pytest.mark.parametrize(
    "fine", ["ms = round(settings.holdback_s * 1000)", "fee = charge // 5", "def f(wait_s: float): ...", "2 ** n"]
)
def test_the_check_accepts_whole_numbers_and_seconds(fine: str) -> None:
    assert not found_in(ast.parse(fine))


# columns


def test_no_column_is_a_float_but_a_jobs_progress() -> None:
    columns = [column for table in metadata.tables.values() for column in table.columns]
    assert {str(column) for column in columns if isinstance(column.type, Float | Numeric)} == {
        "jobs.progress",
        "checkpoints.progress",
    }


MONEY_WORD = re.compile(
    r"(^|_)(amount|balance|price|spot|hold|held|charge|ceiling|floor|budget|fee|pay|refund|spend|grant|earned"
    r"|maturing|matured|available|credits|missing|minimum|base)(_|$)"
)
#: Words that say something about money and are not an amount.
NO_AMOUNT = re.compile(r"_(version|ppm|ms|s|id|by|at|key|method|count|percent|ref|range|label|text|level)$")


def is_money(word: str) -> bool:
    return bool(MONEY_WORD.search(word)) and not NO_AMOUNT.search(word)


def test_amounts_are_kept_as_wide_whole_numbers() -> None:
    money = [column for table in metadata.tables.values() for column in table.columns if is_money(column.name)]
    assert len(money) >= 13
    assert [str(column) for column in money if not isinstance(column.type, BigInteger)] == []


# the wire

#: Parts of jobs and nodes that may be fractions; none of them is money.
FRACTIONS = {"cores", "cores_free", "cores_total", "progress", "score", "terms", "load", "reliability"}
FRACTIONS |= {"success_weight", "failure_weight", "weight"}  # of a node's reputation
FRACTIONS |= {"score_min"}  # of a submitter
FRACTIONS |= {"confidence"}  # how sure to be of a result
FRACTIONS |= {"meta"}  # what a submitter notes about a key, for people
FRACTIONS |= {"lat", "lon", "cores_busy"}  # of the map
FRACTIONS |= {"slowdown"}  # how a node runs beside others of its tier


def models() -> Iterator[type[BaseModel]]:
    for module in pkgutil.walk_packages(computepool.protocol.__path__, "computepool.protocol."):
        for _, member in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(member, BaseModel) and member.__module__ == module.name:
                yield member


def fields(base: type[BaseModel] = BaseModel) -> list[tuple[str, str, FieldInfo]]:
    return [
        (model.__name__, word, field)
        for model in models()
        if issubclass(model, base)
        for word, field in model.model_fields.items()
    ]


def types_in(annotation: Any) -> set[Any]:
    inner = [part for argument in typing.get_args(annotation) for part in types_in(argument)]
    return {annotation, *inner}


def test_no_field_on_the_wire_is_a_float_but_these() -> None:
    floating = [
        f"{model}.{word}"
        for model, word, field in fields()
        if float in types_in(field.annotation) and not word.endswith("_s") and word not in FRACTIONS
    ]
    assert floating == []


def test_amounts_on_the_wire_are_whole_numbers() -> None:
    money = [(model, word, field) for model, word, field in fields() if is_money(word)]
    assert len(money) >= 8
    wrong = [
        f"{model}.{word}: {field.annotation}"
        for model, word, field in money
        if not types_in(field.annotation) & {int, bool, str}
    ]
    assert wrong == []


def amounts_asked_for() -> list[tuple[str, str, FieldInfo]]:
    asked = fields(Request)
    return [(model, word, field) for model, word, field in asked if is_money(word) and _is_int(field)]


def _is_int(field: FieldInfo) -> bool:
    return int in types_in(field.annotation)


@pytest.mark.parametrize(
    ("model", "word", "field"), amounts_asked_for(), ids=[f"{m}.{w}" for m, w, _ in amounts_asked_for()]
)
@pytest.mark.parametrize(
    "amount", [-1, 1.0, 1.5, "1", "1.0", "", True, AMOUNT_MAX + 1, 2**63, float("nan"), float("inf"), [1], {}]
)
def test_only_a_whole_number_within_bounds_is_an_amount(
    model: str, word: str, field: FieldInfo, amount: object
) -> None:
    annotation = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    with pytest.raises(ValidationError):
        adapter.validate_python(amount)


def test_amounts_in_the_settings_are_whole_numbers() -> None:
    money = {word: field for word, field in Settings.model_fields.items() if is_money(word)}
    assert {"signup_grant", "operator_grant", "spend_per_day_max"} <= money.keys()
    assert {word for word, field in money.items() if field.annotation is not int} == set()
