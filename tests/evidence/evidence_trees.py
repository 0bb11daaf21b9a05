"""Recorded trees for the evidence readers: written out from tests/trees/*.tree, or made for a node nobody has here."""

from __future__ import annotations

from pathlib import Path

TREES = Path(__file__).resolve().parent / "trees"


def unpack(name: str, folder: Path) -> tuple[Path, Path]:
    """Write the tree `name` below `folder`; returns its before and after folders."""
    before, after = folder / "before", folder / "after"
    for block in (TREES / f"{name}.tree").read_text().split("=== ")[1:]:
        head, _, content = block.partition("\n")
        path, _, target = head.partition(" -> ")
        roots = [folder] if path.startswith(("before/", "after/")) else [before, after]
        for root in roots:
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            if target:
                place.symlink_to(target)
            else:
                place.write_text(content)
    return before, after


def large(folder: Path, *, cpu_count: int = 256, interrupt_count: int = 2000) -> tuple[Path, Path]:
    """A node with many CPUs and interrupts; between the snapshots every CPU did something, CPU 77 most."""
    for step, name in enumerate(("before", "after")):
        net = folder / name / "proc" / "net"
        net.mkdir(parents=True)
        (net.parent / "interrupts").write_text(_interrupts(cpu_count, interrupt_count, step))
        (net.parent / "softirqs").write_text(_softirqs(cpu_count, step))
        (net.parent / "stat").write_text(_stat(cpu_count, step))
        (net.parent / "schedstat").write_text(_schedstat(cpu_count, step))
        (net / "softnet_stat").write_text("".join(_softnet_line(cpu, step) for cpu in range(cpu_count)))
        (net / "dev").write_text(f"a|b\nc|d\n  hsn0: {step * 5000} 5 0 0 0 0 0 0 {step * 7000} 7 0 0 0 0 0 0\n")
    return folder / "before", folder / "after"


def _busy(cpu: int, step: int) -> int:
    return step * (1000 if cpu == 77 else 3 + cpu % 5)


def _head(cpu_count: int) -> str:
    return "      " + "".join(f"{f'CPU{cpu}':>11}" for cpu in range(cpu_count)) + "\n"


def _interrupts(cpu_count: int, interrupt_count: int, step: int) -> str:
    lines = [_head(cpu_count)]
    for irq in range(interrupt_count):
        cells = [100] * cpu_count
        cells[irq % cpu_count] += _busy(irq % cpu_count, step)
        lines.append(f"{irq:5}: " + "".join(f"{cell:11}" for cell in cells) + f"  PCI-MSI {irq}-edge  nic-rx-{irq}\n")
    return "".join(lines)


def _softirqs(cpu_count: int, step: int) -> str:
    still = "".join(f"{name}: " + " ".join(["9"] * cpu_count) + "\n" for name in ("HI", "TIMER", "NET_TX", "BLOCK", "SCHED"))
    return _head(cpu_count) + still + "NET_RX: " + " ".join(str(50 + _busy(cpu, step)) for cpu in range(cpu_count)) + "\n"


def _stat(cpu_count: int, step: int) -> str:
    lines = [f"cpu  {step * 100} 0 0 {step * 900} 0 0 0 0 0 0\n"]
    lines += [f"cpu{cpu} 10 0 0 {step * 1000} 0 0 {_busy(cpu, step)} 0 0 0\n" for cpu in range(cpu_count)]
    return "".join(lines)


def _schedstat(cpu_count: int, step: int) -> str:
    """Return a node of eight domains per CPU: most of the file is lines that say nothing here."""
    lines = ["version 17", "timestamp 4296537888"]
    for cpu in range(cpu_count):
        lines.append(f"cpu{cpu} 0 0 0 0 0 0 {1000 + _busy(cpu, step)} {2000 + _busy(cpu, step)} {50 + _busy(cpu, step)}")
        lines += [f"domain{level} MC ffffffff,ffffffff" + " 12345" * 45 for level in range(8)]
    return "\n".join(lines) + "\n"


def _softnet_line(cpu: int, step: int) -> str:
    columns = [0x100 + _busy(cpu, step), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, cpu, 0, 0]
    return " ".join(f"{column:08x}" for column in columns) + "\n"
