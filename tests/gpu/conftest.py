"""Tests with a real graphics card. Where there is none they are not collected: a test that cannot run says nothing."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.path.exists("/dev/nvidiactl") else ["test_*.py"]
