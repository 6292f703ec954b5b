"""DEVICE. pack, JaxExecutor, sampling, the loop and Engine."""
