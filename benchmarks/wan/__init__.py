"""A long, narrow or bad network path between two hosts on this machine, made in user space.

::

    with Wan(Conditions(rate=100e6, delay=0.005, loss=0.01)) as wan:
        server = subprocess.Popen([*wan.far.prefix, "iperf3", "--server"])
        subprocess.run([*wan.near.prefix, "iperf3", "--client", wan.far.address])

Two network namespaces are the hosts; each has a TUN device, and one process carries packets from one device to the
other, as late, as slowly and as unreliably as it was told. Kernels can do that too (``tc qdisc ... netem``), but not
every kernel has it, and this one counts what it does and repeats it with a seed.

:mod:`benchmarks.wan.channel` is the emulation itself, without I/O and with time as an argument;
:mod:`benchmarks.wan.router` the process; :mod:`benchmarks.wan.hosts` what starts and ends it. From a shell:
``python -m benchmarks.wan --help``.
"""

from benchmarks.wan.channel import Channel, Conditions
from benchmarks.wan.hosts import Host, Unavailable, Wan, why_unavailable

__all__ = ["Channel", "Conditions", "Host", "Unavailable", "Wan", "why_unavailable"]
