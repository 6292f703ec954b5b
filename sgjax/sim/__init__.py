"""HOST. The simulated executor: a virtual clock, scripted tokens, cost models; no jax."""

from sgjax.sim.build import SimSpec, Simulator, build_simulator
from sgjax.sim.executor import Cost, Script, SimExecutor, hashed_tokens, linear_cost
from sgjax.sim.hardware import Hardware, hardware_names, load_hardware
from sgjax.sim.roofline import Roofline, Work, fitting_kv_tokens

__all__ = [
    "Cost",
    "Hardware",
    "Roofline",
    "Script",
    "SimExecutor",
    "SimSpec",
    "Simulator",
    "Work",
    "build_simulator",
    "fitting_kv_tokens",
    "hardware_names",
    "hashed_tokens",
    "linear_cost",
    "load_hardware",
]
