#!/bin/sh
# Prints the fencing token if this pod is active. Otherwise exits with 1. Usage: reader.sh [DIRECTORY OF THE VOLUME]
volume=${1:-/lease}
# The kubelet replaces ..data as a whole: both files of one version belong together.
version=$(readlink "$volume/..data") || exit 1
until role=$(cat "$volume/$version/role") && token=$(cat "$volume/$version/token"); do
    before=$version version=$(readlink "$volume/..data") || exit 1
    [ "$version" != "$before" ] || exit 1
done 2>/dev/null
[ "$role" = active ] && [ -n "$token" ] && echo "$token"
