#!/usr/bin/env bash
# Checks the alerts of the chart with Prometheus' own tool: their syntax, and that each fires when it should and stays quiet
# otherwise (tests/alerts).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

promtool check rules charts/redislease/files/alerts.yaml
promtool test rules tests/alerts/*.yaml
