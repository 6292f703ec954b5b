"""Put the YAML files into the wheel, inside sgjax/; everything else stands in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithYaml(build_py):
    """Copy the folders that `sgjax.shipped` finds beside the package in a checkout."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for folder in ("configs", "experiments"):
                target = Path(self.build_lib) / "sgjax" / folder
                shutil.copytree(folder, target, dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithYaml})
