#!/usr/bin/env bash
# The pure rooms compile without any IO dependency, each feature by itself, and the core without the standard library.
set -euo pipefail
cd "$(dirname "$0")/.."

refuse() { # refuse <what> <forbidden crates, as a pattern> <cargo tree arguments...>
  local what=$1 forbidden=$2 found
  shift 2
  found=$(cargo tree --edges normal --prefix none "$@" | cut -d' ' -f1 | sort -u | grep -xE "$forbidden" || true)
  if [ -n "$found" ]; then
    echo "purity: $what depends on" $found "- it must not" >&2
    exit 1
  fi
}

io='tokio|redis|hyper|hyper-util|kube-client|kube-runtime|axum|mio|socket2|rustix|rustls|prometheus|getrandom|rand'
cargo check --quiet --package redislease-core --lib
grep -q '^#!\[no_std\]' crates/core/src/lib.rs || { echo "purity: crates/core is not no_std" >&2; exit 1; }
core=$(cargo tree --edges normal --prefix none --package redislease-core | wc -l)
[ "$core" -eq 1 ] || { echo "purity: crates/core has $((core - 1)) dependencies, it must have none" >&2; exit 1; }
cargo check --quiet --lib --no-default-features --features api
refuse "feature api" "$io" --no-default-features --features api
cargo check --quiet --lib --no-default-features --features lock
refuse "feature lock" 'kube.*|k8s-openapi|schemars|axum|clap' --no-default-features --features lock

# The arrows between rooms: who may not name whom.
arrow() { # arrow <room> <forbidden rooms, as a pattern>
  local found
  found=$(grep -rnE "crate::($2)\b" "src/$1" || true)
  if [ -n "$found" ]; then
    echo "purity: src/$1 names a room it must not know:" >&2
    echo "$found" >&2
    exit 1
  fi
}
arrow api 'plan|status|nodes|keeper|operator|cli|metrics|http|telemetry|clock'
arrow plan 'status|nodes|keeper|operator|cli|metrics|http|telemetry|clock'
arrow status 'nodes|keeper|operator|cli|metrics|http|telemetry|clock'
arrow nodes 'api|plan|status|keeper|operator|cli|http|telemetry'
arrow keeper 'api|plan|status|operator|cli|http|telemetry'
arrow operator 'cli|telemetry'
