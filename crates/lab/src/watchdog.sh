# The watchdog: stops what a process has started when that process ends. Standard input carries one line for each thing:
#   pid NUMBER   a server        dir PATH   a folder        cgroup PATH   a cgroup, whose path has no spaces
# End of file means that the process, and every server that was still being started, can add nothing more.
trap '' HUP INT TERM
pids=
cgroups=

# Prints when a process started, in ticks since boot. Together with the process id this identifies a process.
started() {
    read -r stat 2>/dev/null <"/proc/$1/stat" || return 1
    set -- ${stat##*') '}
    echo "${20}"
}

running() {
    for entry in $pids; do
        [ "$(started "${entry%:*}" 2>/dev/null)" = "${entry#*:}" ] && echo "${entry%:*}"
    done
}

# A killed process leaves its cgroup a moment later. The files of a cgroup go with it.
remove_cgroups() {
    left=
    for folder in $cgroups; do
        [ ! -d "$folder" ] || find "$folder" -depth -type d -exec rmdir {} \; 2>/dev/null
        [ ! -d "$folder" ] || left=1
    done
    [ -z "$left" ]
}

clean() {
    left=$(running)
    [ -z "$left" ] || kill -KILL $left 2>/dev/null
    # A folder can be removed when no process writes to it. In a container without an init, killed processes stay in the
    # process table: the number of tries is limited.
    tries=0
    while [ -n "$(running)" ] && [ $tries -lt 40 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    tries=0
    until remove_cgroups || [ $tries -ge 40 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    rm -rf -- "$@"
}

set --
while read -r what value; do
    case $what in
        pid) start=$(started "$value") && pids="$pids $value:$start" ;;
        cgroup) cgroups="$cgroups $value" ;;
        dir) set -- "$@" "$value" ;;
    esac
done
clean "$@"
