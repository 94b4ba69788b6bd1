#!/usr/bin/env bash
# Draws the rows of the dashboard as PNG files, from the data that `make observe` recorded.
#
# Grafana's server is in no package registry, but its components are: the panels are drawn by @grafana/ui in headless
# Chromium. Grafana publishes no component for state timelines, so a few lines of ours draw these.
#
#   hack/dashboard-pictures.sh [FOLDER]   reads FOLDER/data.json, writes FOLDER/*.png; default: target/observe
#   hack/dashboard-pictures.sh possible   whether node, npm and chromium are installed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${1:-target/observe}
drawer=hack/dashboard/pictures

for tool in node npm chromium; do
    command -v "$tool" >/dev/null || { echo "no pictures: $tool is missing (Node.js 20 or newer, Debian package chromium)" >&2; exit 3; }
done
[[ $folder != possible ]] || exit 0
if [[ ! $drawer/node_modules/.package-lock.json -nt $drawer/package-lock.json ]]; then
    echo "install Grafana's components (650 MB, once) ..." >&2
    npm ci --prefix "$drawer" --ignore-scripts --no-audit --no-fund --silent
    touch "$drawer/node_modules/.package-lock.json"
fi
node "$drawer/draw.mjs" "$folder/data.json" "$folder"
