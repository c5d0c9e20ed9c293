"""Requirement expressions over tags and properties of nodes: `tag.ssd and (site == "lab-3" or not tag.laptop)`.

Written in a small part of Python's grammar, whose parser reads them; nothing is ever evaluated as Python.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

#: A tag, or a property with its value (as in core/fleet/features.py).
Feature = str | tuple[str, str]
CHARS_MAX = 500
#: Nesting of parentheses and operators, far below what Python's parser takes.
DEPTH_MAX = 20
TERMS_MAX = 64  #: tags and properties in one expression
_HELP = 'use tag.NAME or tag["NAME"], PROPERTY == "VALUE", !=, in, and, or, not, and parentheses'


@dataclass(frozen=True, slots=True)
class Has:
    feature: Feature


@dataclass(frozen=True, slots=True)
class Not:
    inner: Expression


@dataclass(frozen=True, slots=True)
class Combined:
    is_and: bool
    parts: tuple[Expression, ...]


Expression: TypeAlias = Has | Not | Combined


def check(text: str) -> str:
    """Raises ValueError with one sentence."""
    parse(text)
    return text


@lru_cache(maxsize=1_024)
def parse(text: str) -> Expression:
    if len(text) > CHARS_MAX:
        raise ValueError(f"the expression has {len(text)} characters; the limit is {CHARS_MAX}")
    if "\\" in text or not text.isprintable():  # no escapes, about which Python's parser would warn
        raise ValueError("the expression has a backslash, a line break or another control character")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(f"{text!a} is not an expression; {_HELP}") from None
    found = _read(tree, 0)
    if _count(found) > TERMS_MAX:
        raise ValueError(f"the expression names more than {TERMS_MAX} tags and properties")
    return found


def _read(node: ast.expr, depth: int) -> Expression:
    if depth > DEPTH_MAX:
        raise ValueError(f"the expression is nested more than {DEPTH_MAX} deep")
    if isinstance(node, ast.BoolOp):
        parts = tuple(_read(value, depth + 1) for value in node.values)
        return Combined(isinstance(node.op, ast.And), parts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return Not(_read(node.operand, depth + 1))
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _compare(_name(node.left, "property"), node.ops[0], node.comparators[0])
    return Has(_tag(node))


def _compare(name: str, operator: ast.cmpop, right: ast.expr) -> Expression:
    if isinstance(operator, ast.In | ast.NotIn) and isinstance(right, ast.Tuple | ast.List) and right.elts:
        found: Expression = Combined(False, tuple(Has((name, _text(each))) for each in right.elts))
    elif isinstance(operator, ast.Eq | ast.NotEq):
        found = Has((name, _text(right)))
    else:
        raise _wrong(right)
    return Not(found) if isinstance(operator, ast.NotIn | ast.NotEq) else found


def _tag(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        *before, last = _split_dots(node)
        if before[:1] == ["tag"]:
            return ".".join([*before[1:], last])
    if isinstance(node, ast.Subscript):
        return _name(node, "tag")
    raise _wrong(node)


def _name(node: ast.expr, prefix: str) -> str:
    """Of a property or tag: `site`, `property["my-site"]`, `tag["gpu-box"]`."""
    if isinstance(node, ast.Name) and prefix == "property" and node.id not in ("tag", "property"):
        return node.id
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == prefix:
        return _text(node.slice)
    raise _wrong(node)


def _split_dots(node: ast.expr) -> list[str]:
    """The names in `tag.a.b`; empty if it is anything else. A tag may have dots."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else names


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _wrong(node)


def _wrong(node: ast.expr) -> ValueError:
    return ValueError(f"{ast.unparse(node)[:60]!a} cannot be used here; {_HELP}")


def _count(expression: Expression) -> int:
    if isinstance(expression, Has):
        return 1
    inner = (expression.inner,) if isinstance(expression, Not) else expression.parts
    return sum(map(_count, inner))
