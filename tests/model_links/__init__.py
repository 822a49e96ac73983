"""Every interleaving of the link protocol, over a network that delivers each message once and in any order."""
