#!/usr/bin/env bash
# Compares RedisLease with the leader elections of client-go and of etcd on this machine, and writes
# target/bench/systems.json. bench/README.md says what is measured.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/redislease/bench
mkdir -p "$cache"
echo 'build the candidates of client-go and etcd ...' >&2
(cd bench/systems && GOTOOLCHAIN=local GOFLAGS=-mod=readonly GOWORK=off CGO_ENABLED=0 go build -o "$cache/systems" .)
exec hack/run-example.sh systems --release -- "$cache/systems" "$PWD/target/bench/systems.json"
