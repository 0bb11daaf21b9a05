#!/bin/bash
# Slurm's HealthCheckProgram: drains this node while hpcq's last verdict on it is `failed`.
#
#   hpcq health write /shared/hpcq/health       keeps the file that this script reads; a shared folder, or one copied to the nodes
#   HealthCheckProgram=/etc/slurm/hpcq-health   in slurm.conf, with HealthCheckInterval=300
#
# It starts no process but for a failed node, so it costs about a millisecond. It never gives a node back: an
# administrator does, or `hpcq accept --apply` after a new measurement.
file=${HPCQ_HEALTH:-/etc/hpcq/health}
node=${SLURMD_NODENAME:-${HOSTNAME%%.*}}

if ! [[ -r $file ]]; then
    echo "hpcq: $file cannot be read: this node was not checked" >&2
    exit 1
fi
IFS= read -r -d '' text <"$file" # the whole file at once: a loop over a thousand lines would take many milliseconds
if ! [[ $text =~ $'\n'"$node "([^$'\n']*) ]]; then
    echo "hpcq: $file has no verdict on $node" >&2
    exit 0
fi
read -r verdict _ reason <<<"${BASH_REMATCH[1]}"
[[ $verdict == failed ]] || exit 0
state=$(scontrol show node -o "$node")
if [[ $state != *Reason=hpcq:* ]]; then
    scontrol update nodename="$node" state=drain reason="hpcq: $reason"
fi
exit 1
