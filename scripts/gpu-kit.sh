#!/bin/bash
# Collects what scripts/gpu-check.sh needs on a machine with a GPU but without a network: the packages of the hub and of the
# tests for its Python, and bubblewrap. NumPy is left out, because an environment with torch has it.
#
#   scripts/gpu-kit.sh [FOLDER]      default: .gpu-kit, which git ignores
#   PYTHON_VERSION=3.12              the Python of that machine
set -euo pipefail
cd "$(dirname "$0")/.."

kit=${1:-.gpu-kit}
version=${PYTHON_VERSION:-3.12}
uv=.make/uv/bin/uv
[ -x "$uv" ] || uv=.venv/bin/uv

rm -rf "$kit"
mkdir -p "$kit/bin" "$kit/lib"
# Never satisfied, so these two are not installed.
printf '%s ; python_version < "3"\n' numpy uv >"$kit/overrides.txt"
# Copies, because the libraries are stripped below: links would change those of every other environment.
"$uv" pip install --quiet --link-mode copy --target "$kit/site" --python-version "$version" --python-platform x86_64-manylinux_2_28 \
	--only-binary :all: --overrides "$kit/overrides.txt" --constraints requirements/dev.lock \
	-r pyproject.toml --extra hub pytest pytest-timeout anyio hypothesis

site=$kit/site
find "$site" -name '__pycache__' -prune -exec rm -rf {} +
find "$site" \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' \) -delete
if command -v strip >/dev/null; then
	find "$site" -name '*.so*' -type f -not -path '*.libs/*' -exec strip --strip-unneeded {} + 2>/dev/null || true
fi

# The project itself runs from its folder; this says its version.
number=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
mkdir "$site/computepool-$number.dist-info"
printf 'Metadata-Version: 2.1\nName: computepool\nVersion: %s\n' "$number" >"$site/computepool-$number.dist-info/METADATA"
tar -C "$kit" -czf "$kit/site.tar.gz" site
rm -rf "$site" "$kit/overrides.txt"

bwrap=$(command -v bwrap) || { echo 'bubblewrap is not installed here: apt install bubblewrap' >&2; exit 1; }
cp "$bwrap" "$kit/bin/bwrap"
# All but the C library, which every machine has.
ldd "$bwrap" | awk '$3 ~ /^\// && $1 !~ /^libc\.so/ {print $3}' | while read -r library; do cp -L "$library" "$kit/lib/"; done
du -sh "$kit" | awk '{print $2 ": " $1}'
