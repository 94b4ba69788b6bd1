#!/usr/bin/env bash
# Compares RedisLease with the leader elections of client-go and of etcd on this machine, and writes
# target/bench/systems.json. bench/README.md says what is measured. With QUICK=1 it ends few leaders, to see that it
# works, and writes target/bench/systems-quick.json.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/redislease/bench
mkdir -p "$cache"
header=$(python3 bench/measured.py)
results=target/bench/systems.json
quick=()
if [[ -n ${QUICK:-} ]]; then
    results=target/bench/systems-quick.json
    quick=(quick)
fi
echo 'build the candidates of client-go and etcd ...' >&2
(cd bench/systems && GOTOOLCHAIN=local GOFLAGS=-mod=readonly GOWORK=off CGO_ENABLED=0 go build -o "$cache/systems" .)
exec hack/run-example.sh systems --release -- "$cache/systems" "$PWD/$results" "$header" ${quick[@]+"${quick[@]}"}
