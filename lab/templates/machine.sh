# First process of a machine: a head or a node. Usage: machine.sh NAME head|node
# It has network, UTS, mount, IPC and PID namespaces of its own, made just before, and the tree of its site.
set -eu
name=$1 role=$2
lab=/var/lib/lab

read -r line < /proc/self/stat
set -- $line
echo "$1 ${22}" > "$lab/$name.pid"
trap 'echo failed > "$lab/$name.failed"' EXIT

umount -l /proc
mount -t proc proc /proc
echo "$name" > /proc/sys/kernel/hostname
echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6

# Plug in: eth0 into a leaf switch, mgmt0 into the management switch. Those of an earlier boot vanish with its namespace,
# which Linux takes apart some time after its last process, and their names are taken until then.
ip -netns fabric -force -batch "/etc/lab/$name.unplug" 2>/dev/null || true
ip -batch "/etc/lab/$name.links"
ip -netns fabric -batch "/etc/lab/$name.switch"
if [ -s "/etc/lab/$name.shape" ]; then
    tc -batch "/etc/lab/$name.shape"
    tc -netns fabric -batch "/etc/lab/$name.switch-shape"
fi

mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755,size=1m cgroup /sys/fs/cgroup
mount -t tmpfs -o mode=755,size=64m run /run
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t tmpfs -o mode=1777,size=256m tmp /var/tmp
mount -t tmpfs -o mode=755,size=256m spool /var/spool
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t devpts -o newinstance,gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t mqueue mqueue /dev/mqueue
read -r boot_id < /proc/sys/kernel/random/uuid
echo "$boot_id" > /run/boot_id
mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
mkdir -m 755 /run/munge /run/sshd /run/slurm /run/mysqld /run/lock /var/spool/slurmd

if [ -e /etc/pbs.conf ]; then
    if [ "$role" = node ]; then
        . /etc/lab/pbs-node.sh
    else
        mkdir /var/spool/pbs /run/postgresql
        chown postgres: /run/postgresql
        mount --bind /var/lib/pbs /var/spool/pbs
    fi
else
    . /etc/lab/slurm-machine.sh
fi
trap - EXIT
: > "$lab/$name.ready"
exec < /dev/null > /dev/null 2>&1

# A first process also buries the orphans of its namespace: `wait` does.
while :; do
    sleep 86400 &
    wait
done
