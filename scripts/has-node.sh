#!/usr/bin/env bash
# Whether the dashboard can be built here: Node.js 20 or newer, and npm. Says in one sentence what is missing.
set -euo pipefail
oldest=20

if ! command -v node >/dev/null; then
  echo "There is no Node.js here; the dashboard is built with version $oldest or newer." >&2
  exit 1
fi
if ! node -e "process.exit(parseInt(process.versions.node) < $oldest ? 1 : 0)"; then
  echo "Node.js $(node --version) is too old; the dashboard is built with version $oldest or newer." >&2
  exit 1
fi
if ! command -v npm >/dev/null; then
  echo "There is no npm here; the dashboard's parts are installed with it." >&2
  exit 1
fi
