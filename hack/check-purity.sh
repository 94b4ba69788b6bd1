#!/usr/bin/env bash
# Shows that the pure rooms stay pure: the compiler refuses std in the core, and no IO crate is in the tree of the rest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# The compiler is given a std that does not exist: whatever asks for it, in whatever way, does not compile.
cargo rustc --quiet --package redislease-core --lib --profile check -- --extern std=/there-is-no-std-for-the-core

tree() { cargo tree --edges normal --prefix none --format '{lib}' "$@" | sort -u; }

core=$(tree --package redislease-core)
[[ $core == redislease_core ]] || die "redislease-core has dependencies; it may have none: ${core//$'\n'/ }"

# Resources, election, status and plan are data and functions.
cargo check --quiet --package redislease --lib --no-default-features --features api
io='tokio|redis|hyper|kube_client|kube_runtime|axum|rustls|rustix|mio|socket2|reqwest|tower'
all=$(tree --package redislease --no-default-features --features api)
found=$(grep -xE "$io" <<<"$all" | xargs) || true
[[ -z $found ]] || die "the feature api must bring no IO, and brings $found (cargo tree --no-default-features --features api -i CRATE)"

# The lock is a library for programs without Kubernetes.
cargo check --quiet --package redislease --lib --no-default-features --features lock
all=$(tree --package redislease --no-default-features --features lock)
found=$(grep -E '^(kube|k8s)' <<<"$all" | xargs) || true
[[ -z $found ]] || die "the feature lock must do without Kubernetes, and brings $found"

# The arrows between the rooms of the package point one way.
arrow() { # arrow <room> <rooms it must not name, as a pattern>
    local found code=0
    found=$(grep -rnE "crate::(\{[^}]*)?($2)\b" "src/$1") || code=$?
    case $code in
        0) die "src/$1 names a room that it must not know:
$found" ;;
        1) ;;
        *) die "src/$1 cannot be searched" ;;
    esac
}
arrow api 'election|plan|status|nodes|keeper|operator|cli|metrics|http|telemetry|clock'
arrow election 'status|plan|nodes|keeper|operator|cli|metrics|http|telemetry|clock'
arrow status 'plan|nodes|keeper|operator|cli|metrics|http|telemetry|clock'
arrow plan 'nodes|keeper|operator|cli|metrics|http|telemetry|clock'
arrow nodes 'api|election|plan|status|keeper|operator|cli|http|telemetry'
arrow keeper 'api|election|plan|status|operator|cli|http|telemetry'
arrow metrics 'election|plan|status|nodes|keeper|operator|cli|http|telemetry'
arrow http 'api|election|plan|status|nodes|keeper|operator|cli|telemetry'
arrow telemetry 'api|election|plan|status|nodes|keeper|operator|cli|http|metrics'
arrow operator 'cli|telemetry'
echo "pure: core without std and dependencies, api without IO, lock without Kubernetes, arrows one way"
