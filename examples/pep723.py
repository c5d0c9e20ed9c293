#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = ["humanize>=4"]
# ///
"""A script that lists its dependencies (PEP 723): the node installs them once, from wheels.

Run:  pool submit examples/pep723.py --wait
"""

import humanize

print(f"A terabyte is {humanize.naturalsize(1e12)}, or {humanize.intword(1e12)} bytes.")
