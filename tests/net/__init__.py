"""Real processes and real sockets: on loopback, and in network namespaces where the machine allows it."""
