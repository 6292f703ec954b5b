"""Put configs/ into the wheel as sgjax/configs; everything else stands in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConfigs(build_py):
    """Copy the YAML files that `sgjax.shipped` finds beside the package in a checkout."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "sgjax" / "configs"
            shutil.copytree("configs", target, dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithConfigs})
