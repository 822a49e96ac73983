"""Exon: messages between nodes over UDP, each delivered exactly once."""
