#!/bin/sh
# Makes the base image of Lathe's images without a registry of images: Debian 12 as a tar file.
#
#   deploy/images/base.sh OUT.tar [PACKAGE...]
#   docker import OUT.tar localhost/lathe-base:bookworm
#   docker build --build-arg BASE=localhost/lathe-base:bookworm …
#
# Packages come from the Debian archives that apt of this machine uses, with its proxy.
# PACKAGE: further packages. Needs mmdebstrap (Debian), and root or user namespaces.
set -eu

[ $# -ge 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 64; }
out=$1
shift
suite=bookworm
extra=$(printf ',%s' "$@")
[ $# -gt 0 ] || extra=

# One line for each Debian archive of this machine. Archives of other vendors are left out.
sources() {
  # shellcheck disable=SC2016  # apt replaces these names
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(ORIGIN)' 'Created-By: Packages' |
    sort -u | while read -r uri release component origin; do
      case "$origin $release" in
        "Debian $suite" | "Debian $suite-updates" | "Debian $suite-security")
          [ "$component" = main ] && echo "deb $uri $release $component" ;;
      esac
    done
}

list=$(sources)
[ -n "$list" ] || {
  echo "base.sh: apt of this machine knows no archive of $suite; run apt-get update" >&2
  exit 1
}

# An archive of a past day has no valid date. apt of this machine says whether to accept that.
set --
for name in Acquire::http::Proxy Acquire::https::Proxy Acquire::Check-Valid-Until Acquire::Check-Date; do
  value=$(apt-config shell value "$name" | sed "s/^value='\(.*\)'$/\1/")
  [ -z "$value" ] || set -- "$@" --aptopt="$name \"$value\""
done

# The images keep the licenses of their packages; manuals and translations are left out.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(date +%s)}
export SOURCE_DATE_EPOCH
echo "$list" | mmdebstrap --quiet --variant=minbase --include="ca-certificates,tini$extra" "$@" \
  --dpkgopt='path-exclude=/usr/share/man/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' \
  --dpkgopt='path-exclude=/usr/share/doc/*' \
  --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  "$suite" "$out" -
