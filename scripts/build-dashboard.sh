#!/usr/bin/env bash
# Builds web/out. BASE_PATH is a marker that the hub writes its own path prefix over, so that one build serves everywhere.
set -euo pipefail
cd "$(dirname "$0")/.."

mkdir -p .make
log=.make/dashboard.log
started=$SECONDS
if ! (cd web && NEXT_TELEMETRY_DISABLED=1 BASE_PATH=/__pool__ node_modules/.bin/next build) >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  echo "The dashboard could not be built; all of what was said is in $log." >&2
  exit 1
fi
touch web/out/index.html
echo "Built the dashboard in $((SECONDS - started)) s"
