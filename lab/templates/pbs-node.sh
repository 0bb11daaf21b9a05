# What PBS runs on a node. Part of machine.sh, and what starts the daemon again where it has ended.
export PBS_CONF_FILE=/etc/lab/pbs-node.conf
{
    [ -d /var/spool/pbs/mom_priv ] || {
        /opt/pbs/libexec/pbs_habitat
        # Homes and work directories are one for all machines: output is copied, not sent.
        printf '$usecp *:/home /home\n$usecp *:/scratch /scratch\n' >> /var/spool/pbs/mom_priv/config
    }
    pidof pbs_mom > /dev/null || /opt/pbs/libexec/pbs_init.d start
} >> "/var/log/lab/pbs-$(hostname).log" 2>&1
