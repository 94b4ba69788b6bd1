#!/usr/bin/env bash
# Builds the operator and one example of the lab in one go, so that they and the tests share what is built, and runs it.
#
#   hack/run-example.sh demo
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

example=${1:?the name of an example}
echo "build the operator and the $example ..." >&2
cargo build --locked --package redislease --package redislease-lab --bin redislease --example "$example"
# Nothing is left to build: it only says where things are, wherever the user lets them be built.
artifacts=$(cargo build --locked --package redislease --package redislease-lab --bin redislease --example "$example" \
    --quiet --message-format=json)
executable() { sed -n 's/.*"name":"'"$1"'".*"executable":"\([^"]*\)".*/\1/p' <<<"$artifacts" | tail -1; }
exec "$(executable "$example")" "$(executable redislease)"
