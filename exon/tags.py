"""Proof that a datagram comes from somebody who receives what is sent to that address.

Ids and epochs are no secret: whoever asks is told. So a datagram that claims to be from a peer proves nothing, and must
neither touch that peer's records nor move its address (an address must not be taken from its owner by a claim). As in
SCTP (RFC 9260, verification tags) and QUIC (RFC 9000, section 8, address validation), every datagram carries a *tag*,
and the answer shows it as *proof*. A tag is a keyed hash of the peer's id, its epoch and the address it is sent to, so
none has to be remembered to be checked, and a stranger who does not see the traffic cannot know it.

This keeps out everybody who is not on the path. It does not replace encryption: whoever reads the traffic can forge it.
"""

from __future__ import annotations

from hashlib import blake2b

from exon.addresses import Address


class Tags:
    """The tags that one life of a node gives out."""

    def __init__(self, secret: bytes) -> None:
        """``secret`` is random and known to nobody else."""
        self._secret = secret

    def tag(self, peer: str, epoch: int, address: Address) -> int:
        """What life ``epoch`` of ``peer`` at ``address`` will show; never 0, which stands for no proof."""
        text = f"{peer}\0{epoch}\0{address[0]}\0{address[1]}"
        digest = blake2b(text.encode(), digest_size=8, key=self._secret).digest()
        return (int.from_bytes(digest, "big") >> 1) or 1
