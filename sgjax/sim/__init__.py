"""HOST. The simulated executor: a virtual clock, scripted tokens, cost models; no jax."""

from sgjax.sim.executor import Cost, Script, SimExecutor, hashed_tokens, linear_cost

__all__ = ["Cost", "Script", "SimExecutor", "hashed_tokens", "linear_cost"]
