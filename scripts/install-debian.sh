#!/usr/bin/env bash
# Installs the named Debian packages, only those that are missing, and says nothing when there is nothing to do.
# Uses sudo when not root. Where it may not install, it says in one sentence what is missing.
set -euo pipefail

# The thing itself is looked for, not the package: it may have come another way.
present() {
  case "$1" in
    bubblewrap) command -v bwrap >/dev/null ;;
    chromium) command -v chromium >/dev/null || command -v google-chrome >/dev/null ;;
    postgresql) compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null ;;
    runc) PATH=$PATH:/usr/local/sbin:/usr/sbin command -v runc >/dev/null ;;
    python3-venv) "${PYTHON:-python3}" -c 'import ensurepip, venv' 2>/dev/null ;;
    *) dpkg -s "$1" 2>/dev/null | grep -q '^Status: .* installed$' ;;
  esac
}

# `make test` also installs PostgreSQL as a wheel, so that a user without root can still run every test.
replaceable() { [ "$1" = postgresql ]; }

missing=()
for package in "$@"; do
  present "$package" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo)
  # Without a terminal nobody could type the password.
  { command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; } || as_root=(none)
fi

if [ "${as_root[*]}" = none ] || ! command -v apt-get >/dev/null; then
  echo "Missing: ${missing[*]}. Ask someone with root to run: apt-get install ${missing[*]}" >&2
  for package in "${missing[@]}"; do
    replaceable "$package" || exit 1
  done
  exit 0
fi

echo "Installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  # `env` because sudo drops the environment.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" >>"$log" 2>&1
}
install() { apt install --yes --no-install-recommends "${missing[@]}"; }

# The package lists are fetched only when the ones at hand do not do: that is the slow part.
install || { apt update && install; } || {
  tail -n 20 "$log" >&2
  echo "Could not install: ${missing[*]}" >&2
  exit 1
}
