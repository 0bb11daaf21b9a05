#!/bin/sh
# A queue for one machine: jobs wait for file locks on their nodes, and run one after another on each node.
#
#   localq.sh QUEUE nodes NODE…              node|state, one per line
#   localq.sh QUEUE submit SCRIPT NAME WALLTIME_S NODE…   prints the id
#   localq.sh QUEUE poll ID…                 id|STATE|nodes|name|reason
#   localq.sh QUEUE cancel ID NAME …         ends jobs with this id and name; cancel-queued: only if not started
#   localq.sh QUEUE find                     id|name of every job
#
# A job is QUEUE/jobs/<id>/ with the files name, nodes, pid and state. The state is written by the job's own keeper, so
# a job whose keeper died shows as LOST and never counts as successful.
set -u
queue=$1
verb=$2
shift 2
mkdir -p "$queue/jobs" "$queue/nodes"

put() { # FILE TEXT: written aside and renamed
    printf '%s\n' "$2" >"$1.part" && mv "$1.part" "$1"
}

end_the_rest() { # JOB SESSION: what still runs of a job, TERM first, KILL two seconds later
    rounds=0
    while [ "$rounds" -lt 100 ]; do
        ps -o pid=,ppid=,stat= -s "$2" >"$1/left"
        others=
        while read -r pid parent state; do # except this shell, ps itself, and zombies
            case $state in Z*) continue ;; esac
            [ "$pid" = "$$" ] || [ "$parent" = "$$" ] || others="$others $pid"
        done <"$1/left"
        [ -n "$others" ] || break
        # shellcheck disable=SC2086 # one word per process
        case $rounds in
        0) kill -TERM $others 2>/dev/null ;;
        [2-9]?) kill -KILL $others 2>/dev/null ;;
        esac
        sleep 0.1
        rounds=$((rounds + 1))
    done
    rm -f "$1/left"
}

end_without_its_keeper() { # JOB: what is left of it; while its timeout(1) lives, the script ends its own processes
    [ -e "$1/leader" ] && [ ! -e "$1/rest" ] || return 0
    session=$(cat "$1/pid") leader=$(cat "$1/leader")
    # shellcheck disable=SC2009 # pgrep does not tell a zombie
    ps -o pid=,stat= -s "$session" | grep -q "^ *$leader [^Z]" && return 0
    : >"$1/rest"
    end_the_rest "$1" "$session"
}

case $verb in
nodes)
    for node in "$@"; do
        if flock -n "$queue/nodes/$node" true; then echo "$node|idle"; else echo "$node|allocated"; fi
    done
    ;;
submit)
    script=$1 name=$2 walltime_s=$3
    shift 3
    id=1
    until mkdir "$queue/jobs/$id" 2>/dev/null; do id=$((id + 1)); done
    job=$queue/jobs/$id
    printf '%s\n' "$@" | sort >"$job/nodes"
    put "$job/name" "$name"
    put "$job/state" PENDING
    # bash, like the script: a plain sh has no descriptor above 9, and a tournament may hold more than 9 nodes.
    HPCQ_LOCAL_JOB_ID=$id setsid /bin/bash "$0" "$queue" wait_and_run "$job" "$script" "$walltime_s" \
        </dev/null >"$(dirname "$script")/job.out" 2>&1 &
    put "$job/pid" "$!"
    echo "$id"
    ;;
wait_and_run) # takes the nodes' locks one by one, in the order of their names, so that two jobs never block each other
    job=$1 script=$2 walltime_s=$3
    locks=
    while IFS= read -r node; do
        # shellcheck disable=SC3022 # bash runs this part
        exec {lock}>>"$queue/nodes/$node"
        flock "$lock" || exit 1
        locks="$locks $lock"
    done <"$job/nodes"
    [ -e "$job/cancelled" ] && exit 0
    # Tests may keep every core busy, and the driver runs here too. If Linux has autogroups (CONFIG_SCHED_AUTOGROUP),
    # this session is one: a tenth of the weight suffices on an idle machine and leaves the driver a share on a busy one.
    # A user may write there ten times per second, all sessions together.
    for _ in 1 2 3 4 5; do
        [ -w "/proc/$$/autogroup" ] || break
        if { echo 10 >"/proc/$$/autogroup"; } 2>/dev/null; then break; fi
        sleep 0.2
    done
    put "$job/state" RUNNING
    # The locks belong to this keeper: processes that the job leaves behind must not hold its nodes.
    (
        # shellcheck disable=SC3022 # bash runs this part
        for lock in $locks; do exec {lock}>&-; done
        # shellcheck disable=SC3028 # bash runs this part
        put "$job/leader" "$BASHPID"
        exec timeout --kill-after=5 "$walltime_s" /bin/bash "$script"
    ) &
    child=$!
    # A cancel before the child existed reached no process.
    [ -e "$job/cancelled" ] && kill -TERM "$child" 2>/dev/null
    wait "$child"
    rc=$?
    # A job leaves nothing behind, as on a cluster: a server may outlive a timeout(1) that was killed, and a timeout(1) ends
    # without its child if a signal arrives while it starts the child.
    end_the_rest "$job" "$$"
    if [ -e "$job/cancelled" ]; then
        put "$job/state" CANCELLED
    elif [ "$rc" -eq 124 ] || [ "$rc" -eq 137 ]; then
        put "$job/state" TIMEOUT
    elif [ "$rc" -eq 0 ]; then
        put "$job/state" COMPLETED
    else
        put "$job/state" FAILED
    fi
    ;;
poll)
    for id in "$@"; do
        job=$queue/jobs/$id
        [ -e "$job/state" ] || continue
        state=$(cat "$job/state") reason=
        case $state in
        PENDING | RUNNING)
            if ! kill -0 "$(cat "$job/pid" 2>/dev/null)" 2>/dev/null; then
                state=$(cat "$job/state") # it may have ended between the two reads
                case $state in PENDING | RUNNING) state=LOST reason="its keeper died" ;; esac
            fi
            ;;
        esac
        [ "$state" = LOST ] && end_without_its_keeper "$job"
        [ "$state" = LOST ] && [ -e "$job/cancelled" ] && state=CANCELLED
        echo "$id|$state|$(tr '\n' ',' <"$job/nodes")|$(cat "$job/name" 2>/dev/null)|$reason"
    done
    ;;
cancel | cancel-queued)
    while [ "$#" -ge 2 ]; do
        job=$queue/jobs/$1 name=$2
        shift 2
        [ -e "$job/state" ] && [ "$(cat "$job/name" 2>/dev/null)" = "$name" ] || continue
        case $(cat "$job/state") in
        PENDING)
            : >"$job/cancelled"
            kill -TERM "-$(cat "$job/pid")" 2>/dev/null
            put "$job/state" CANCELLED
            ;;
        RUNNING) # the keeper stays to write the last state; the script gets TERM and writes its exit file
            [ "$verb" = cancel ] || continue
            : >"$job/cancelled"
            keeper=$(cat "$job/pid")
            if kill -0 "$keeper" 2>/dev/null; then
                pkill -TERM --parent "$keeper" 2>/dev/null
            else # nobody is left who would end the rest
                end_the_rest "$job" "$keeper"
            fi
            ;;
        esac
    done
    true
    ;;
find)
    for job in "$queue"/jobs/*/; do
        [ -e "${job}name" ] && echo "$(basename "$job")|$(cat "${job}name")"
    done
    true
    ;;
esac
