"""Golden vectors of the wire format, for every implementation in every language."""
