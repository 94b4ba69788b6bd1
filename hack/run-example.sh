#!/usr/bin/env bash
# Builds the operator and one example of the lab, and runs the example. With the features of the whole workspace, a debug build uses the
# dependencies that the tests have built.
#
#   hack/run-example.sh demo
#   hack/run-example.sh scale --release
#   hack/run-example.sh e2e -- FILE         arguments after -- are for the example, after the operator's binary
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

example=${1:?the name of an example}
shift
options=()
while (($#)) && [[ $1 != -- ]]; do
    options+=("$1")
    shift
done
[[ ${1:-} != -- ]] || shift
build=(cargo build --locked ${options[@]+"${options[@]}"} --workspace --bin redislease --example "$example")
echo "build the operator and the example $example ..." >&2
"${build[@]}"
# Everything is built: the second call only prints the paths, which depend on the user's settings.
artifacts=$("${build[@]}" --quiet --message-format=json)
executable() { sed -n 's/.*"name":"'"$1"'".*"executable":"\([^"]*\)".*/\1/p' <<<"$artifacts" | tail -1; }
exec "$(executable "$example")" "$(executable redislease)" "$@"
