"""The state of a lab, as one object for programs and as lines for people."""

import machines
import wan
from layout import Cluster, Lab, settings_as_json
from processes import recorded
from quantities import rate_text
from services import nodes


def status(lab: Lab) -> dict[str, object]:
    """The state of everything in the lab, now."""
    return {
        "name": lab.settings.name,
        "state": "up",
        "folder": str(lab.state),
        "init_pid": machines.init_of(lab).pid,
        "ssh_config": str(lab.ssh_config),
        "settings": settings_as_json(lab.settings),
        "wan": wan.wan_now(lab),
        "clusters": [_cluster_status(lab, cluster) for cluster in lab.clusters],
    }


def _cluster_status(lab: Lab, cluster: Cluster) -> dict[str, object]:
    head = recorded(cluster.pid_file(cluster.head.name))
    return {
        "name": cluster.name,
        "cluster_file": str(lab.cluster_file(cluster)),
        "accounting": cluster.has_accounting,
        "controller": "up" if head and nodes.idle_node_count(lab, cluster) >= 0 else "down",
        "nodes_ready": max(0, nodes.idle_node_count(lab, cluster)) if head else 0,
        "logs": str(cluster.var / "log"),
        "home": str(cluster.folder / "home"),
        "scratch": str(cluster.folder / "scratch"),
        "machines": [
            {
                "name": machine.name,
                "role": "head" if machine.is_head else "node",
                "leaf": f"leaf{machine.leaf_no}",
                "eth0": machine.address,
                "mgmt0": machine.mgmt_address,
                "pid": found.pid if (found := recorded(cluster.pid_file(machine.name))) else None,
            }
            for machine in cluster.machines
        ],
    }


def rows(lab: Lab, found: dict[str, object]) -> list[str]:
    """The status as lines for people."""
    lines = [f"lab {found['name']} is up in {found['folder']}"]
    clusters = found["clusters"]
    for cluster in clusters if isinstance(clusters, list) else []:
        nodes = [machine for machine in cluster["machines"] if machine["role"] == "node"]
        lines.append(
            f"{cluster['name']:6} controller {cluster['controller']}  nodes {cluster['nodes_ready']}/{len(nodes)}"
            f"  {nodes[0]['eth0']} to {nodes[-1]['eth0']}  {cluster['cluster_file']}"
        )
    lines.append(wan_row(lab))
    lines.append(f"ssh    ssh -F {found['ssh_config']} alpha-head")
    return lines


def wan_row(lab: Lab) -> str:
    """The link as one line."""
    now = wan.settings_now(lab)
    return (
        f"wan    {now.delay_ns / 1e6:g} ms one way  {rate_text(now.rate_bps)}  loss {now.loss_ratio:g}  by {wan.wire_kind(lab)}"
    )
