"""`python -m computepool.cli` is `pool`: how `pool up` starts its own parts, wherever the script is installed."""

from __future__ import annotations

from computepool.cli.main import main

main()
