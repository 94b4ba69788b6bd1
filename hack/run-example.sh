#!/usr/bin/env bash
# Builds the operator and one example of the lab together, so that they share dependencies, and runs the example.
#
#   hack/run-example.sh demo
#   hack/run-example.sh scale --release
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

example=${1:?the name of an example}
build=(cargo build --locked "${@:2}" --package redislease --package redislease-lab --bin redislease --example "$example")
echo "build the operator and the example $example ..." >&2
"${build[@]}"
# Everything is built: the second call only prints the paths, which depend on the user's settings.
artifacts=$("${build[@]}" --quiet --message-format=json)
executable() { sed -n 's/.*"name":"'"$1"'".*"executable":"\([^"]*\)".*/\1/p' <<<"$artifacts" | tail -1; }
exec "$(executable "$example")" "$(executable redislease)"
