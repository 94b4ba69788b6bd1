#!/usr/bin/env bash
# Measures what many leases cost on the lock layer alone: the keeper and the nodes on three real redis-servers, without
# Kubernetes. Prints a table, and draws the cost against the number of leases.
#
#   hack/lock-scale.sh [NUMBER...]   numbers of leases; default: 100 1000 10000 100000. Each takes 3 to 6 minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=3.11.2
folder=${XDG_CACHE_HOME:-${HOME:?}/.cache}/redislease/matplotlib-$version
table=target/lock-scale.md

mkdir -p target
if [[ ! -d $folder ]]; then
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --target "$folder.new" "matplotlib==$version"
    mv "$folder.new" "$folder"
fi
cargo bench --locked --bench lock_scale -- "$@" | tee "$table"
PYTHONPATH=$folder python3 benches/lock_scale/plot.py "$table" docs/images/lock-scale.png
