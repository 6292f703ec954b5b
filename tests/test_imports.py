"""Who may import whom (architecture section 3), read from the source; and host code without jax."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "sgjax"

BASE = {"errors", "params", "types", "typed", "shipped", "own"}
HOST = BASE | {"tokens", "cache", "fsm", "schedule"}
DEVICE = {"kernels", "models"}
ANY = HOST | DEVICE | {"", "sim", "engine", "theory", "lang", "lang.backends", "serve", "lab"}

ALLOWED: dict[str, set[str]] = {
    "": {"errors", "lang", "lang.backends", "lang.backends.local"},
    "errors": set(),
    "params": {"errors"},
    "types": {"errors", "params"},
    "typed": {"errors"},
    "shipped": {"errors"},
    "own": {"errors", "typed"},
    "tokens": BASE,
    "cache": BASE,
    "fsm": BASE | {"tokens"},
    "schedule": HOST,
    "sim": HOST | {"models"},
    "kernels": BASE,
    "models": BASE | {"tokens", "kernels"},
    "engine": HOST | DEVICE | {"sim"},
    "theory": BASE | {"cache"},
    "aot": HOST | DEVICE | {"engine"},
    "lang": {"errors", "types", "typed", "lang.backends"},
    "lang.backends": {"errors", "types", "tokens", "lang", "lang.backends.local"},
    "lang.backends.local": ANY - {"serve", "lab"},
    "serve": ANY - {"lab"},
    "lab": ANY | {"lang.backends.local"},
    "chat": BASE | {"tokens"},
    "cli": ANY | {"chat", "aot"},
    "__main__": {"cli"},
}
"""What each unit may import beside itself. `""` is the package itself: the public names."""

JAX = {"jax", "jaxlib", "flax", "chex", "optax"}
HOST_UNITS = HOST | {"", "sim", "theory", "lang", "lang.backends"}
HOST_MODULES = {
    "aot.check",
    "aot.job",
    "aot.report",
    "aot.targets",
    "engine.assemble",
    "engine.caller",
    "engine.config",
    "engine.drawn",
    "engine.engine",
    "engine.exact",
    "engine.front",
    "engine.inputs",
    "engine.loop",
    "engine.parts",
    "engine.results",
    "engine.simulated",
    "lang.backends.local",
    "models.config",
    "models.gguf_file",
    "models.presets",
    "models.pull",
    "serve.router",
}
"""Modules without jax among packages that use it."""


def modules():
    """Every module of the package, as (dotted name below sgjax, path)."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(modules())


def unit(module):
    """The longest entry of ALLOWED that a module belongs to."""
    parts = module.split(".")
    heads = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return next((head for head in heads if head in ALLOWED), None)


def imported(path):
    """Every imported module and line, wherever in the file, but for type checkers alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(node)
        for guard in ast.walk(tree)
        if isinstance(guard, ast.If) and ast.unparse(guard.test).endswith("TYPE_CHECKING")
        for node in ast.walk(guard)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively; name it in full"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                is_module = inner.removeprefix("sgjax.") in MODULES
                yield (inner if is_module else node.module), node.lineno


def inside(name):
    """The name below sgjax, or None for another package."""
    return "" if name == "sgjax" else name[6:] if name.startswith("sgjax.") else None


def is_host(module):
    return module in HOST_MODULES or unit(module) in HOST_UNITS


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module or "sgjax")
def test_a_module_imports_only_what_its_layer_may(module):
    path = MODULES[module]
    mine = unit(module)
    assert mine is not None, f"{module} is in no layer; add it to ALLOWED and the architecture"
    for name, line in imported(path):
        other = inside(name)
        if other is not None and unit(other) != mine:
            assert unit(other) in ALLOWED[mine], f"{path}:{line} imports {name}"
        if is_host(module):
            assert name.split(".")[0] not in JAX, f"{path}:{line}: host code imports {name}"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module or "sgjax")
def test_a_module_that_calls_itself_host_code_is_held_to_it(module):
    said = ast.get_docstring(ast.parse(MODULES[module].read_text(encoding="utf-8"))) or ""
    assert is_host(module) or not re.search(r"\bHOST\b|\bno jax\b", said), (
        f"{module} says that it is host code; add it to HOST_MODULES"
    )


def test_the_walk_sees_imports_inside_functions_but_not_those_for_type_checkers(tmp_path):
    source = tmp_path / "module.py"
    source.write_text(
        "import os\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import jax\n"
        "def late():\n    from sgjax.cache import pool\n    from sgjax.errors import SgjaxError\n"
    )
    names = [name for name, _ in imported(source)]
    assert names == ["os", "typing", "sgjax.cache.pool", "sgjax.errors"]


def test_host_code_runs_with_jax_blocked():
    names = [f"sgjax.{m}".rstrip(".") for m in MODULES if is_host(m)]
    program = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {JAX!r}:\n"
        "            raise ImportError(f'{name} is blocked')\n"
        "sys.meta_path.insert(0, Block())\n"
        "import importlib\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "sgjax.cache" in names
