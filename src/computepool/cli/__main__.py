"""`python -m computepool.cli` is `pool`. `pool up` starts its processes this way, wherever the script is installed."""

from __future__ import annotations

from computepool.cli.main import main

main()
