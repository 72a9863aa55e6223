#!/bin/sh
# Makes what the services of docker-compose.yml must share, once. Repetitions keep what is there.
#
#   init.sh prepare   the database's password and the certificates, as root, before the engines
#   init.sh join      copies of the engines' secrets, and the first key, beside running engines
#   init.sh lathe …   the command `lathe` at the engine that leads; `key` prints the first key
set -eu
umask 077
user=10001
volumes=/volumes
engines="engine-a engine-b"

say() { echo "init: $*"; }

random_password() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

make_password() {
  [ -s $volumes/postgres/password ] || random_password >$volumes/postgres/password
  for engine in $engines; do
    printf 'postgres:5432:lathe:lathe:%s\n' "$(cat $volumes/postgres/password)" \
      >"$volumes/$engine/pgpass"
  done
}

# The authority signs one certificate for each service. Its own key stays in its own volume.
make_certificates() {
  lathe certs init --out $volumes/authority --name engine-a --name engine-b --name gateway \
    --name worker
  for name in $engines gateway worker; do
    cp $volumes/authority/ca.crt "$volumes/$name/ca.crt"
    cp "$volumes/authority/$name.crt" "$volumes/$name/tls.crt"
    cp "$volumes/authority/$name.key" "$volumes/$name/tls.key"
  done
}

prepare() {
  make_password
  make_certificates
  chown -R $user:$user $volumes/*
  say "passwords and certificates are in their volumes"
}

wait_for() {
  tries=0
  until [ -s "$1" ]; do
    tries=$((tries + 1))
    [ $tries -le 120 ] || { say "$1 is missing" >&2; exit 1; }
    sleep 0.5
  done
}

# Runs `lathe` at each engine until one of them leads. If none does what it is asked, prints why the
# leader does not, and not that the others stand by.
at_leader() {
  reason='' standby=''
  for engine in $engines; do
    if told=$(lathe "$@" --run-dir "/run/$engine" 2>&1); then
      printf '%s\n' "$told"
      return
    fi
    case $told in
      *not_leader*) standby=$told ;;
      *) reason=$told ;;
    esac
  done
  printf '%s\n' "${reason:-$standby}" >&2
  return 1
}

make_key() {
  [ ! -s $volumes/keys/admin.key ] || return 0
  tries=0
  until at_leader keys create --tenant admin --name compose --scope admin --scope train \
    --scope sample --scope read --scope checkpoints:write >$volumes/keys/answer; do
    tries=$((tries + 1))
    [ $tries -le 60 ] || { say "no engine leads" >&2; exit 1; }
    sleep 1
  done
  grep -o 'tml-[A-Za-z0-9_-]*' $volumes/keys/answer >$volumes/keys/admin.key
  rm $volumes/keys/answer
}

join() {
  wait_for /run/engine-a/secret
  wait_for /run/engine-a/gateway.secret
  cp /run/engine-a/secret $volumes/worker/secret
  cp /run/engine-a/gateway.secret $volumes/gateway/gateway.secret
  make_key
  say "the administrator's key is there: docker compose run --rm admin key"
}

verb=$1
shift
case $verb in
  prepare) prepare ;;
  join) join ;;
  lathe) if [ "${1:-}" = key ]; then cat $volumes/keys/admin.key; else at_leader "$@"; fi ;;
  *) say "unknown word $verb" >&2; exit 64 ;;
esac
