"""HOST. Policies (order), admission (fit), the Scheduler (plan, commit, retract); no jax."""
