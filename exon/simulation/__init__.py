"""A deterministic network of real nodes with virtual time, for tests: ours and yours.

``python -m exon.simulation --seed 7 --scenario moves`` replays one run; see :data:`SCENARIOS` for the names.
"""

from exon.simulation.lossy import LossySocket, lossy
from exon.simulation.network import Host, Network
from exon.simulation.scenarios import SCENARIOS, Scenario, Violation, run

__all__ = ["SCENARIOS", "Host", "LossySocket", "Network", "Scenario", "Violation", "lossy", "run"]
