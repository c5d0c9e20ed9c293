#!/usr/bin/env bash
# Puts the locked uv into .make/uv. Usage: install-uv.sh PYTHON
# Debian splits venv and pip from Python, so each way that may be missing has another behind it.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${1:-}
if [ -z "$python" ]; then
  echo "ComputePool needs Python 3.11 or newer; none was found. Name one with: make PYTHON=/path/to/python3" >&2
  exit 1
fi

target=.make/uv
options=(-qq --disable-pip-version-check --require-hashes --requirement requirements/uv.lock)
rm -rf "$target"

with_venv() {
  "$python" -m venv "$target" >/dev/null 2>&1 && "$target/bin/pip" install "${options[@]}"
}
with_pip() {
  rm -rf "$target"
  "$python" -m pip --version >/dev/null 2>&1 && "$python" -m pip install "${options[@]}" --target "$target"
}
with_debian() {
  rm -rf "$target"
  PYTHON="$python" scripts/install-debian.sh python3-venv && with_venv
}

with_venv || with_pip || with_debian
"$target/bin/uv" --version >/dev/null
