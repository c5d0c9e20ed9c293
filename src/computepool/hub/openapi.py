"""`python -m computepool.hub.openapi` prints the API's OpenAPI document, without a hub."""

from __future__ import annotations

import json
import sys

from computepool.hub.app import create_api


def text() -> str:
    return json.dumps(create_api().openapi(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
