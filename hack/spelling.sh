#!/usr/bin/env bash
# Checks the spelling of all files with typos. It knows common misspellings, so it needs no dictionary of our words; typos.toml
# lists the exceptions.
#
#   hack/spelling.sh            checks; fails if typos is not installed
#   hack/spelling.sh available  whether the check can run
#   hack/spelling.sh install    installs the pinned version from PyPI, without changing the system's packages
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=1.52.0
folder=${XDG_CACHE_HOME:-${HOME:?}/.cache}/redislease/typos-$version

available() {
    [[ -x $folder/bin/typos ]]
}

install() {
    command -v python3 >/dev/null || { echo "error: python3 is missing: install python3 and python3-pip" >&2; return 1; }
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --target "$folder" "typos==$version"
}

case ${1:-check} in
    available) available ;;
    install) available || install ;;
    check)
        available || { echo "error: typos is not installed: run hack/spelling.sh install" >&2; exit 1; }
        "$folder/bin/typos" --format brief || {
            echo "error: correct the words above, or add an exception with its reason to typos.toml" >&2
            exit 1
        }
        ;;
    *) echo "error: say check, available or install" >&2; exit 2 ;;
esac
