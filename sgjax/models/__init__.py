"""DEVICE. Models as pure functions over weight pytrees, their configs, loaders and presets."""
