"""The scenarios, by name."""

from benchmarks.scenario import Scenario
from benchmarks.scenarios.oneway import ONE_WAY
from benchmarks.scenarios.pubsub import PUB_SUB
from benchmarks.scenarios.rpc import OUTSTANDING, RPC, TASKS
from benchmarks.scenarios.scaling import IDLE_LINKS, LINKS, MEMORY
from benchmarks.scenarios.wan import WAN_FAIRNESS, WAN_ONE_WAY, WAN_PATHS, WAN_RPC

LOOPBACK: tuple[Scenario, ...] = (ONE_WAY, RPC, TASKS, OUTSTANDING, PUB_SUB)
NETWORK: tuple[Scenario, ...] = (WAN_ONE_WAY, WAN_RPC, WAN_PATHS, WAN_FAIRNESS)
SCALING: tuple[Scenario, ...] = (LINKS, IDLE_LINKS, MEMORY)
SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in LOOPBACK + SCALING + NETWORK}
