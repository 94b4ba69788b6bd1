#!/usr/bin/env bash
# Builds the operator and the demo in one go, so that they and the tests share what is built, and runs the demo.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "build the operator and the demo ..." >&2
cargo build --package redislease --package redislease-lab --bin redislease --example demo
target=$(cargo metadata --format-version 1 --no-deps --offline | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
exec "$target/debug/examples/demo"
