"""Message sockets over Exon, an exactly-once datagram transport."""

__version__ = "0.1.0.dev0"
