# First process of the lab's own PID and mount namespace. Usage: init.sh STATE_FOLDER
# Its death ends everything that the lab runs.
set -eu
state=$1

# /proc is still that of the outside, so this is our id out there, and when we started.
read -r line < /proc/self/stat
set -- $line
echo "$1 ${22}" > "$state/init.pid.part"
mv "$state/init.pid.part" "$state/init.pid"

# Who started us has to say go; if it died meanwhile we end too, and nothing was begun.
echo ready
read -r go || exit 0
exec < /dev/null > /dev/null 2>&1

# /run may be mounted noexec; jobs run programs from the work directory below it.
mount --bind "$state" "$state"
mount -o remount,bind,exec,suid,dev "$state"
: > "$state/init.ready"

while :; do
    sleep 86400 &
    wait
done
