# A cluster's site: the network namespace with its switches, and the tree of files that its machines see.
# Usage: site.sh SITE_FOLDER ROOT_FILE_SYSTEM
set -eu
site=$1 root=$2
lab=$site/var/lib/lab
tree=$site/tree

read -r line < /proc/self/stat
set -- $line
echo "$1 ${22}" > "$lab/site.pid"
trap 'echo failed > "$lab/site.failed"' EXIT

# Programs and libraries of the root file system, read-only; everything else is the site's own.
mkdir -p "$tree"
mount -t tmpfs -o mode=755,size=16m tree "$tree"
cd "$tree"
for entry in bin sbin lib lib32 lib64 libx32 usr opt; do
    if [ -L "$root/$entry" ]; then
        cp -P "$root/$entry" "$entry"
    elif [ -d "$root/$entry" ]; then
        mkdir "$entry"
        mount --bind "$root/$entry" "$entry"
        mount -o remount,bind,ro "$entry"
    fi
done
mount -t tmpfs -o mode=755,size=1m local usr/local
mkdir etc var home scratch run tmp root proc sys dev
chmod 700 root
for folder in etc var home scratch; do
    mount --bind "$site/$folder" "$folder"
done
mount --bind /proc proc
mknod -m 666 dev/null c 1 3
mknod -m 666 dev/zero c 1 5
mknod -m 666 dev/full c 1 7
mknod -m 666 dev/random c 1 8
mknod -m 666 dev/urandom c 1 9
mknod -m 666 dev/tty c 5 0
mkdir dev/pts dev/shm dev/mqueue
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr

# The switches. /run/netns/fabric is how the machines of the site name this network while they plug themselves in.
echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6
echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6
echo 1 > /proc/sys/net/ipv4/ip_forward
for key in /proc/sys/net/bridge/bridge-nf-call-*; do
    [ ! -w "$key" ] || echo 0 > "$key" || true
done
ip -batch "$site/etc/lab/site.links"
[ ! -s "$site/etc/lab/site.shape" ] || tc -batch "$site/etc/lab/site.shape"
mkdir run/netns
: > run/netns/fabric
mount --bind /proc/self/ns/net run/netns/fabric

mkdir .outside
pivot_root . .outside
cd /
umount -l /.outside
rmdir /.outside

trap - EXIT
: > /var/lib/lab/site.ready
exec sleep infinity
