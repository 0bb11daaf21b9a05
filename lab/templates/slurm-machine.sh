# What Slurm runs on a machine: munge, and slurmd on a node. Part of machine.sh.
munged --socket=/run/munge/munge.socket.2 --pid-file=/run/munge/munged.pid --seed-file=/run/munge/munged.seed \
    --key-file=/etc/munge/munge.key --log-file="/var/log/munge/$name.log" --num-threads=1

if [ "$role" = node ]; then
    slurmd -D < /dev/null > /dev/null 2>&1 &
else
    chown slurm: /run/slurm
    ! getent passwd mysql > /dev/null || chown mysql: /run/mysqld
fi
