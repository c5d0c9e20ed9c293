#!/usr/bin/env bash
# Makes sure that there is a runsc (gVisor) of 2024 or later, and says nothing when there is. Usage: install-runsc.sh FOLDER
# A newer one on PATH wins. Else that of Debian 13 is taken, whose package is one static program that needs nothing:
# it is unpacked into FOLDER, and nothing else on the system changes. Needs no root but for a FOLDER that does.
set -euo pipefail

folder=${1:?Usage: install-runsc.sh FOLDER}
suite=trixie
oldest=2024

# The release's date is its version: "release-20240729.0", Debian writes "0.0~20240729.0-4".
new_enough() {
  local found
  found=$("$1" --version 2>/dev/null | grep -oE '[0-9]{8}' | head -n 1) || return 1
  [ "${found:0:4}" -ge "$oldest" ]
}
for program in "$(command -v runsc || true)" /usr/local/lib/computepool/runsc "$folder/runsc"; do
  if [ -n "$program" ] && [ -x "$program" ] && new_enough "$program"; then exit 0; fi
done

give_up() {
  echo "No runsc of $oldest or later: $1. The level gvisor stays unavailable, and its tests are skipped." >&2
  exit 0
}
command -v apt-get >/dev/null && command -v dpkg >/dev/null || give_up "this machine has no apt"
case "$(dpkg --print-architecture)" in
  amd64 | arm64) ;;
  *) give_up "gVisor runs on amd64 and arm64 only" ;;
esac

# The mirror is the one that this machine uses for Debian already; only the suite differs.
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 'Component: main' 2>/dev/null |
  awk -v codename="$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" '$2 == codename {print $1; exit}')
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -n "$mirror" ] || give_up "apt knows no mirror of Debian here"
[ -r "$keyring" ] || give_up "$keyring is missing (package debian-archive-keyring)"

echo "Fetching runsc of Debian's $suite into $folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,cache/archives/partial,unpacked} "$folder"
echo "deb [signed-by=$keyring] $mirror $suite main" >"$work/sources.list"
# A world of apt's own in a temporary folder: the machine's lists and packages are not touched.
options=(-qq
  -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::Preferences=/dev/null
  -o Dir::Etc::PreferencesParts=/dev/null
  -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o APT::Sandbox::User= -o Acquire::Languages=none
  -o Acquire::Retries=3 -o Acquire::http::Timeout=30)
log=$work/log
(
  cd "$work"
  apt-get "${options[@]}" update && apt-get "${options[@]}" download runsc &&
    dpkg -x runsc_*.deb unpacked
) >"$log" 2>&1 || {
  tail -n 5 "$log" >&2
  give_up "the package could not be fetched"
}
# By renaming, so that one that is running stays whole.
install -m 755 "$work/unpacked/usr/bin/runsc" "$folder/.runsc-new"
mv -f "$folder/.runsc-new" "$folder/runsc"
new_enough "$folder/runsc" || give_up "what $suite has is older"
