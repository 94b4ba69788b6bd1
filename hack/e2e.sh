#!/usr/bin/env bash
# Installs the chart on two real Kubernetes nodes with real pods, and lets parts fail (crates/lab/examples/e2e).
#
#   hack/e2e.sh          with the image of the release binary, which hack/image.sh builds
#   hack/e2e.sh debug    with an image made of the debug binary and its libraries
#
# Exit code 3: this machine cannot run a node. The last line says why.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

what=${1:-release}
case $what in release | debug) ;; *) echo "error: say debug, or nothing" >&2; exit 2 ;; esac

# Before anything is built.
if ! reason=$(hack/node-possible.sh); then
    echo "error: this machine cannot run a Kubernetes node: $reason" >&2
    exit 3
fi
hack/build-tools.sh node
archive=()
if [[ $what == release ]]; then
    hack/install-deps.sh image
    file=$PWD/target/image/e2e.tar
    hack/image.sh --output "$file"
    archive=("$file")
fi
exec hack/run-example.sh e2e -- ${archive[@]+"${archive[@]}"}
