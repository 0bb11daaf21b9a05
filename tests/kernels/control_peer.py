"""The control channel written down a second time, in Python: a client and a server that can be as rude as a test wants."""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
from dataclasses import dataclass, field
from typing import Self


def frame(*lines: str) -> bytes:
    """A frame of the handshake, before anybody proved anything."""
    payload = "".join(line + "\n" for line in lines).encode()
    return struct.pack(">I", len(payload)) + payload


@dataclass
class ControlPeer:
    """A client that knows the secret: `send` and `receive` are frames with their MAC."""

    port: int
    key: bytes
    timeout_s: float = 120
    sent_count: int = 0
    received_count: int = 0
    session_key: bytes = b""
    side: bytes = b"\0"
    peer: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self.peer = socket.create_connection(("127.0.0.1", self.port), timeout=self.timeout_s)
        nonce = os.urandom(16)
        self.peer.sendall(frame("hello", "protocol 1", "nonce " + nonce.hex()))
        challenge = dict(line.split(" ", 1) for line in self._payload().decode().splitlines()[1:])
        nonces = nonce + bytes.fromhex(challenge["nonce"])
        self.peer.sendall(frame("proof", "proof " + self._mac(b"client", nonces).hex()))
        self.session_key = self._mac(b"session", nonces)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.peer.close()

    def _mac(self, purpose: bytes, nonces: bytes) -> bytes:
        return hmac.new(self.key, b"hpcq 1 " + purpose + nonces, hashlib.sha256).digest()

    def _payload(self) -> bytes:
        head = self._exactly(4)
        return self._exactly(struct.unpack(">I", head)[0])

    def _exactly(self, count: int) -> bytes:
        got = b""
        while len(got) < count:
            piece = self.peer.recv(count - len(got))
            if not piece:
                raise ConnectionError("the server closed the control channel")
            got += piece
        return got

    def send(self, payload: bytes) -> None:
        """One frame with the MAC that its number and direction give it."""
        head = self.side + struct.pack(">Q", self.sent_count)
        self.sent_count += 1
        mac = hmac.new(self.session_key, head + payload, hashlib.sha256).digest()
        self.peer.sendall(struct.pack(">I", len(payload)) + payload + mac)

    def receive(self) -> list[str]:
        """The lines of the next message; ConnectionError when the server ended the session."""
        payload = self._payload()
        self._exactly(32)
        self.received_count += 1
        return payload.decode().splitlines()

    def token(self) -> bytes:
        """The first bytes on the test channel."""
        return hmac.new(self.session_key, b"test channel", hashlib.sha256).digest()[:16]


@dataclass
class ControlHost(ControlPeer):
    """A server that knows the secret; port: where it listens, of 0 the one it got. `meet` takes its one client."""

    side: bytes = b"\1"
    listener: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", self.port))
        self.listener.settimeout(self.timeout_s)
        self.port = self.listener.getsockname()[1]

    def __exit__(self, *exc: object) -> None:
        self.listener.close()
        self.peer.close()

    def meet(self) -> None:
        """Until both have proven that they know the secret."""
        self.peer, _ = self.listener.accept()
        self.peer.settimeout(self.timeout_s)
        hello = dict(line.split(" ", 1) for line in self._payload().decode().splitlines()[1:])
        mine = os.urandom(16)
        nonces = bytes.fromhex(hello["nonce"]) + mine
        self.peer.sendall(frame("challenge", "nonce " + mine.hex(), "proof " + self._mac(b"server", nonces).hex()))
        assert self._payload().decode().splitlines() == ["proof", "proof " + self._mac(b"client", nonces).hex()]
        self.session_key = self._mac(b"session", nonces)
