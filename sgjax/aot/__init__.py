"""Compile for devices that are not here: sizes, registers, collectives and refusals, no speed."""
