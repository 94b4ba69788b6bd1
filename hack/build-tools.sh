#!/usr/bin/env bash
# Builds the tools that tests and the demo run: etcd, the Kubernetes control plane, kubectl; for tests also Helm,
# helm-unittest, helm-docs and versitygw, an S3 server; and for a real node the kubelet, containerd and the CNI plugins.
#
#   hack/build-tools.sh            build what is missing of the tools for `make test`, print where everything is
#   hack/build-tools.sh lab        the same, without the tools that only `make test` needs
#   hack/build-tools.sh node       as lab, and Helm and the tools of a real node
#   hack/build-tools.sh --print    build nothing; one line "tool<TAB>path" each: where it is, or would be
#
# Every folder of hack/tools is a separate Go module, because their versions of k8s.io differ. The binaries are in the
# user's cache folder under a key made from the pinned sources: clones share it, and `cargo clean` does not delete it. A
# tool in the folder KUBEBUILDER_ASSETS is used from there if it has the right version.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/tools"

say() { printf '%s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

# A relative path would be resolved against another folder here.
for variable in XDG_CACHE_HOME KUBEBUILDER_ASSETS; do
    [[ -z ${!variable:-} || ${!variable} == /* ]] || die "$variable=${!variable} must be an absolute path, or be unset."
done
[[ -n ${XDG_CACHE_HOME:-}${HOME:-} ]] || die "neither HOME nor XDG_CACHE_HOME is set: set one, the tools are kept in it."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/redislease/tools
# A toolchain that Go downloads, and the user's settings, would make builds with the same key differ.
export GOTOOLCHAIN=local GOFLAGS=-mod=readonly GOWORK=off CGO_ENABLED=0
unset GOOS GOARCH GOAMD64 GOARM64 GOEXPERIMENT

# tool, the module that pins it, its package
tools="\
etcd etcd go.etcd.io/etcd/server/v3
kube-apiserver kubernetes k8s.io/kubernetes/cmd/kube-apiserver
kube-controller-manager kubernetes k8s.io/kubernetes/cmd/kube-controller-manager
kube-scheduler kubernetes k8s.io/kubernetes/cmd/kube-scheduler
kubectl kubernetes k8s.io/kubernetes/cmd/kubectl
kubelet kubernetes k8s.io/kubernetes/cmd/kubelet
containerd containerd github.com/containerd/containerd/v2/cmd/containerd
containerd-shim-runc-v2 containerd github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
ctr containerd github.com/containerd/containerd/v2/cmd/ctr
bridge cni github.com/containernetworking/plugins/plugins/main/bridge
loopback cni github.com/containernetworking/plugins/plugins/main/loopback
host-local cni github.com/containernetworking/plugins/plugins/ipam/host-local
helm helm helm.sh/helm/v4/cmd/helm
helm-unittest helm-unittest github.com/helm-unittest/helm-unittest/cmd/helm-unittest
helm-docs helm-docs github.com/norwoodj/helm-docs/cmd/helm-docs
versitygw versitygw github.com/versity/versitygw/cmd/versitygw"

# The tools that only `make test` needs, the one that also a real node needs, and those that only a real node needs.
test='helm-unittest|helm-docs|versitygw'
chart='helm'
node='kubelet|containerd|containerd-shim-runc-v2|ctr|bridge|loopback|host-local'

# Increase this when a change of the build below changes the binaries.
recipe=1
declare -A key
for module in etcd kubernetes containerd cni helm helm-unittest helm-docs versitygw; do
    key[$module]=$({ echo "$recipe $(uname -sm)"; cat "$module/go.mod" "$module/go.sum"; } | sha256sum | cut -c1-16)
done

pinned() { # module -> the version of what it builds
    case $1 in
        etcd) sed -n 's|.*go.etcd.io/etcd/server/v3 v\([0-9.]*\).*|\1|p' etcd/go.mod ;;
        kubernetes) sed -n 's|.*k8s.io/kubernetes v\([0-9.]*\).*|\1|p' kubernetes/go.mod ;;
        containerd) sed -n 's|.*containerd/containerd/v2 v\([0-9.]*\).*|\1|p' containerd/go.mod ;;
        cni) sed -n 's|.*containernetworking/plugins v\([0-9.]*\).*|\1|p' cni/go.mod ;;
        helm) sed -n 's|.*helm.sh/helm/v4 v\([0-9.]*\).*|\1|p' helm/go.mod ;;
        helm-unittest) sed -n 's|.*helm-unittest/helm-unittest v\([0-9.]*\).*|\1|p' helm-unittest/go.mod ;;
        versitygw) sed -n 's|.*versity/versitygw v\([0-9.]*\).*|\1|p' versitygw/go.mod ;;
        helm-docs) sed -n 's|.*norwoodj/helm-docs v\([0-9.]*\).*|\1|p' helm-docs/go.mod ;;
    esac
}

version_of() { # tool, file -> what it says
    case $1 in
        kubectl) "$2" version --client 2>&1 ;;
        helm) "$2" version --short 2>&1 ;;
        # These tools do not print their version.
        helm-unittest | helm-docs) "$2" --help 2>&1 ;;
        # A CNI plugin prints its version if the variable of its command is not set.
        bridge | loopback | host-local) env -u CNI_COMMAND "$2" 2>&1 ;;
        containerd-shim-runc-v2) "$2" -v 2>&1 ;;
        *) "$2" --version 2>&1 ;;
    esac
}

from_assets() { # tool, module -> whether KUBEBUILDER_ASSETS holds it in the pinned minor version
    local file=${KUBEBUILDER_ASSETS:-}/$1 minor found
    [[ -n ${KUBEBUILDER_ASSETS:-} && -x $file ]] || return 1
    minor=$(pinned "$2"); minor=${minor%.*}
    # An older etcd lacks progress notifications, which watches need; mixed minors of Kubernetes are unsupported.
    found=$(version_of "$1" "$file") || true
    [[ $found =~ (^|[^0-9.])${minor//./\\.}\.[0-9] ]] && return 0
    say "note: $file is not version $minor.x and is left aside (it says: ${found%%$'\n'*})"
    return 1
}

place() { # tool, module -> its path
    if from_assets "$1" "$2"; then echo "$KUBEBUILDER_ASSETS/$1"; else echo "$cache/$2-${key[$2]}/$1"; fi
}

need_go() {
    local need have
    need=$(sed -n 's/^go //p' ./*/go.mod | sort -V | tail -1)
    command -v go >/dev/null || die "Go is missing: the tools need Go $need or newer in PATH (https://go.dev/dl)."
    have=$(cd / && go version | sed -n 's/^go version go\([0-9.]*\).*/\1/p')
    [[ $(printf '%s\n' "$need" "$have" | sort -V | head -1) == "$need" ]] ||
        die "Go $have at $(command -v go) is too old: the tools need Go $need or newer (https://go.dev/dl)."
}

build() { # tool, module, package, path
    local started=$SECONDS flags="-s -w" ticker
    [[ $2 != kubernetes ]] || flags+=" -X k8s.io/component-base/version.gitVersion=v$(pinned kubernetes)"
    [[ $2 != containerd ]] || flags+=" -X github.com/containerd/containerd/v2/version.Version=v$(pinned containerd)"
    # Helm tells charts its version, and the one that they see otherwise has no patch level.
    [[ $2 != helm ]] || flags+=" -X helm.sh/helm/v4/internal/version.version=v$(pinned helm)"
    [[ $2 != versitygw ]] || flags+=" -X main.Version=v$(pinned versitygw)"
    say "build $1 $(pinned "$2") ..."
    # A cold build of the API server prints nothing for minutes.
    while sleep 15; do say "  still building $1, $((SECONDS - started)) s ..."; done 9>&- &
    ticker=$!
    trap 'kill "$ticker" 2>/dev/null' EXIT
    (cd "$2" && GOOS=$(go env GOHOSTOS) GOARCH=$(go env GOHOSTARCH) \
        go build -trimpath -buildvcs=false -ldflags "$flags" -o "$4.building" "$3") ||
        die "building $1 failed; the lines above are Go's."
    kill "$ticker"
    trap - EXIT
    version_of "$1" "$4.building" >/dev/null || die "what was built as $1 does not run: remove $4.building and see \`go env\`."
    mv "$4.building" "$4"
    say "built $1 in $((SECONDS - started)) s"
}

case ${1:-} in
    --print) while read -r tool module _; do printf '%s\t%s\n' "$tool" "$(place "$tool" "$module")"; done <<<"$tools"; exit ;;
    "") tools=$(grep -vE "^($node) " <<<"$tools") ;;
    lab) tools=$(grep -vE "^($test|$chart|$node) " <<<"$tools") ;;
    node) tools=$(grep -vE "^($test) " <<<"$tools") ;;
    *) die "unknown argument $1; lab and node select other tools, --print says where the tools are." ;;
esac

while read -r tool module package; do
    path=$(place "$tool" "$module")
    [[ ! -x $path ]] || continue
    need_go
    mkdir -p "${path%/*}"
    # Two clones that build the same key take turns; the second one finds the binaries.
    exec 9>"$cache/$module.lock"
    flock -n 9 || { say "waiting for another build of $module ..."; flock 9; }
    [[ -x $path ]] || build "$tool" "$module" "$package" "$path" <&-
    exec 9>&-
done <<<"$tools"
say "tools: $cache${KUBEBUILDER_ASSETS:+ and $KUBEBUILDER_ASSETS}"
