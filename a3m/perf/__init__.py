"""What ``a3m perf`` does: measure a machine, or the link between two, and account for every message.

=================  =====================================================================================
:mod:`.spec`       one measurement, as both sides agree on it
:mod:`.numbered`   messages with numbers, and the account of those that came
:mod:`.work`       the four loops that are measured: send, receive, ask, reply
:mod:`.libraries`  where their sockets come from: A3M, and pyzmq to compare with
:mod:`.transport`  what the transport did meanwhile
:mod:`.server`     does its half of what clients ask for
:mod:`.client`     does the other half, and has the figures of both
:mod:`.local`      a server in a process of its own, for measurements on one machine
:mod:`.result`     what came out of one measurement
:mod:`.suite`      all measurements of a run, and what came out of them
:mod:`.tables`     the same in rows and columns
:mod:`.screen`     how it is shown
=================  =====================================================================================

What counts is what the *receiver* took, by its own clock, after a warm-up: what only sits in a queue does not. While
something is measured, no other thread of either process waits for a socket: the first thread that waits drives the
node, and if that were another than the one that is measured, each message would have to be handed over.
"""
