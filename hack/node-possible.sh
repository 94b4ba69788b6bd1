#!/usr/bin/env bash
# Says whether this machine can run a real Kubernetes node: exit code 0, or one sentence on standard output that names what
# is missing, and exit code 1. It changes nothing that outlives it.
set -uo pipefail

cannot() { echo "$*"; exit 1; }

[[ $(uname -s) == Linux ]] || cannot "a Kubernetes node needs Linux."
((EUID == 0)) || cannot "this user is not root."
for tool in unshare:util-linux nsenter:util-linux mount:mount ip:iproute2 runc:runc "${REDIS_SERVER:-redis-server}:redis-server" cc:gcc strip:binutils; do
    command -v "${tool%:*}" >/dev/null || cannot "${tool%:*} is missing: run \`hack/install-deps.sh node\`, or install the package ${tool#*:}."
done
alone=(unshare --pid --fork --kill-child --mount-proc --mount --propagation=private --net)
why=$("${alone[@]}" true 2>&1) || cannot "this machine does not allow new namespaces (${why##*$'\n'})."
why=$("${alone[@]}" mount -t tmpfs tmpfs /run 2>&1) || cannot "this machine does not allow mounts (${why##*$'\n'})."
network='ip link add name a type bridge && ip link add name b type veth peer name c'
why=$("${alone[@]}" sh -c "$network" 2>&1) || cannot "this machine cannot create a bridge and a veth pair (${why##*$'\n'})."

root=/sys/fs/cgroup
if [[ -e $root/cgroup.controllers ]]; then
    controllers=" $(<"$root/cgroup.controllers") "
    folders=("$root")
    # With version 2, a kubelet does without cpuset, which a kernel for one processor lacks.
    for needed in cpu memory pids; do
        [[ $controllers == *" $needed "* ]] || cannot "the cgroup controller $needed is not available in $root."
    done
    # Version 2 allows no controllers below a cgroup that has processes, unless it is the root of all.
    [[ -e $root/cgroup.type && -n $(<"$root/cgroup.procs") ]] &&
        cannot "$root has processes, so no controller can be passed on: run this outside of a container, or with the cgroup namespace of the machine."
else
    folders=()
    for needed in cpu cpuacct cpuset memory pids; do
        [[ -e $root/$needed/cgroup.procs ]] || cannot "the cgroup controller $needed is not mounted in $root."
        folders+=("$root/$needed")
    done
fi
for folder in "${folders[@]}"; do
    trial=$folder/redislease-possible-$$
    mkdir "$trial" 2>/dev/null || cannot "this machine does not allow new cgroups in $folder."
    rmdir "$trial"
done
