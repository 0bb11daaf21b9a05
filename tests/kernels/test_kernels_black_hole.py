"""A path on which large packets vanish without a word: control messages get through."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernels.kernel_namespaces import ADDRESSES, Pair, inside, joined
from tests.kernels.kernel_programs import Programs

pytestmark = pytest.mark.lab

#: As behind a switch port with a small MTU: no error comes back, so no end learns of it.
DROP = "add table inet hole; add chain inet hole out { type filter hook output priority 0; }; "
DROP += "add rule inet hole out meta length gt 1290 drop"


@pytest.fixture
def hole(tmp_path: Path) -> Iterator[Pair]:
    with joined(tmp_path) as pair:
        for end in ADDRESSES:
            inside(end, "ip", "link", "set", "eth0", "gso_max_segs", "1")  # what the rule sees is what the wire would carry
            inside(end, "nft", DROP)
        yield pair


@pytest.mark.promise("Control messages get through where packets above 1,290 bytes vanish.")
@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
def test_control_messages_survive_an_mtu_black_hole(hole: Pair, programs: Programs, *, six: bool) -> None:
    small = hole.run(programs.net, "udp_pingpong", six=six, message_bytes=64, duration_s=0.02, warmup_s=0)
    assert small.line["valid"], (small.line["error"], small.line["invalid_reason"])
    report = len(str(small.line["evidence"]["server"]))
    assert report > 1290, "what the server reports is more than one packet that gets through"
