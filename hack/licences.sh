#!/usr/bin/env bash
# Checks the dependencies in Cargo.lock with cargo-deny: their licences, their sources, and that no crate is there in two versions
# without a reason. deny.toml has the exceptions with their reasons. Then writes the SBOM and the licences to target/licences.
#
#   hack/licences.sh             checks; fails if cargo-deny is not installed
#   hack/licences.sh available   whether the check can run
#   hack/licences.sh install     builds the pinned version, once (about 8 minutes of one core)
#   hack/licences.sh advisories  checks for known vulnerabilities; downloads the RustSec database
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=0.20.2
folder=${XDG_CACHE_HOME:-${HOME:?}/.cache}/redislease/cargo-deny-$version
deny=$folder/bin/cargo-deny

available() {
    [[ -x $deny ]]
}

install() {
    # Its target folder is removed: it would take a gigabyte.
    local scratch
    scratch=$(mktemp -d)
    CARGO_TARGET_DIR=$scratch cargo install cargo-deny --version "$version" --locked --no-default-features --root "$folder" || {
        rm -rf "$scratch"
        return 1
    }
    rm -rf "$scratch"
}

needed() {
    available || { echo "error: cargo-deny is not installed: run hack/licences.sh install" >&2; exit 1; }
}

case ${1:-check} in
    available) available ;;
    install) available || install ;;
    check)
        needed
        "$deny" --offline --locked check licenses bans sources
        hack/inventory.sh target/licences
        ;;
    advisories) needed; "$deny" --locked check advisories ;;
    *) echo "error: say check, available, install or advisories" >&2; exit 2 ;;
esac
