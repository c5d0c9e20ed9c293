"""Logs of hub and agent. Whatever text people choose, a record stays one line and no terminal obeys it."""

from __future__ import annotations

import copy
import json
import logging
import sys

from computepool.core.plaintext import escape


class PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        plain = copy.copy(record)
        plain.msg, plain.args = record.getMessage().replace("\n", "\\n"), None
        return escape(super().format(plain))  # including the traceback, which keeps its lines


class JsonFormatter(logging.Formatter):
    """One JSON document per line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "at_ms": round(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return escape(json.dumps(fields, ensure_ascii=False))


def configure_json(level: str | int) -> None:
    """Log JSON to standard output, for programs. Later configuration has no effect."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler])


def configure(level: str | int, *, format: str) -> None:
    """Log to standard error, unless the root logger has a handler already."""
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter(format))
    logging.basicConfig(level=level, handlers=[handler])
