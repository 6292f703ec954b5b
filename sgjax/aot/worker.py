"""One compile job, in its own process: python -m sgjax.aot.worker JOB DUMP.

DEVICE. Prints the verdict's fields as JSON in its last line. Nothing runs and no array exists:
weights and pool are shapes, laid out over the described devices as an engine would.
"""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding

from sgjax.aot.check import ABSENT, ptxas
from sgjax.aot.job import STEPS, Job
from sgjax.aot.targets import Target, load_target
from sgjax.engine.pack import Shape, dummy_batch
from sgjax.engine.step import step
from sgjax.engine.vocab import WHOLE, Vocab
from sgjax.errors import SgjaxError
from sgjax.kernels.base import Attention
from sgjax.kernels.pallas_gpu import PallasGpuAttention
from sgjax.kernels.pallas_tpu import PallasTpuAttention
from sgjax.kernels.sharded import ShardedAttention
from sgjax.models import sharding
from sgjax.models.config import DTYPE_BYTES, ModelConfig
from sgjax.models.layer import LlamaWeights
from sgjax.models.llama import make_kv, stored_bytes
from sgjax.models.presets import load_preset
from sgjax.models.weights import from_tensors, tensor_shapes

RESERVE_BYTES = 1 << 30
"""Left free for temporaries where the K/V pool takes what there is."""
MASK_ROWS = 16 * 64

_COLLECTIVE = re.compile(
    r"= (.*?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(.*"
)
_ARRAY = re.compile(r"\b(?:f32|bf16|s32|u32|pred|u8|s8)\[([\d,]*)\]")


def main() -> None:
    """Compile and report."""
    job = Job(**json.loads(sys.argv[1]))
    target = load_target(job.target)
    try:
        devices = topologies.get_topology_desc(**_topology(job, target)).devices
    except Exception as error:  # no plugin: whatever its loader raises
        what = f"no compiler for {target.platform}; install sgjax[aot] ({_one_line(error)})"
        print(what, file=sys.stderr)
        sys.exit(ABSENT)
    try:
        found = _check(job, target, list(devices), Path(sys.argv[2]))
    except Exception as error:  # whatever the compiler raises, amid what its libraries log
        found = {"status": "rejected", "reason": _one_line(error)}
    print(json.dumps(found))


def _one_line(error: Exception) -> str:
    """Return what people need of an error."""
    told = " ".join(str(error).split()) or type(error).__name__
    ours = isinstance(error, SgjaxError)
    return told if ours else f"{type(error).__name__}: {told}"[:500]


def _topology(job: Job, target: Target) -> dict[str, Any]:
    name = target.topology(job.tensor)
    if target.platform == "tpu":
        return {"platform": "tpu", "topology_name": name}
    return {
        "platform": "cuda",
        "topology_name": "",
        "target_config": target.description,
        "topology": name,
    }


def _check(job: Job, target: Target, devices: list[Any], dump: Path) -> dict[str, Any]:
    asked = load_preset(job.model).config
    if job.heads:
        H, K, D = job.heads
        asked = dataclasses.replace(asked, num_heads=H, num_kv_heads=K, head_dim=D)
    whole = sharding.fit_config(asked, job.tensor)
    layers = min(job.num_layers or whole.num_layers, whole.num_layers)
    if job.step == "kernel":
        layers = 1
    config = dataclasses.replace(whole, num_layers=layers)
    mesh = Mesh(np.array(devices[: job.tensor]), (sharding.TENSOR,))
    room = target.memory_bytes * target.usable_memory
    weights_bytes = _bytes_a_device(abstract_weights(whole, mesh, job.dtype))
    token_bytes = stored_bytes(whole, job.dtype, target.platform, job.tensor) // job.tensor
    left = int(room - weights_bytes - RESERVE_BYTES) // token_bytes
    tokens = job.kv_tokens or max(left, job.context)
    tokens = tokens // job.page_size * job.page_size
    compiled = _compile(job, target, config, mesh, tokens)
    memory: Any = compiled.memory_analysis()
    text = compiled.as_text()
    assert text is not None, "the compiler gives no text"
    in_layers, outside, largest = _collectives(text)
    temp = int(memory.temp_size_in_bytes)
    total = weights_bytes + tokens * token_bytes + temp
    if job.step == "kernel":
        total = 0
    found = {
        "status": "fits" if total <= room else "too big",
        "reason": ""
        if total <= room
        else f"{total / 1e9:.1f} GB a device are needed, {room / 1e9:.1f} GB are usable",
        "weights_bytes": weights_bytes,
        "kv_bytes": tokens * token_bytes,
        "temp_bytes": temp,
        "kv_tokens": tokens,
        "alias_bytes": int(memory.alias_size_in_bytes),
        "compiled_kv_bytes": tokens * token_bytes * layers // whole.num_layers,
        "num_layers": layers,
        "layer_collectives": in_layers,
        "other_collectives": outside,
        "largest_other": largest,
        "kernels": len(re.findall(r"custom-call\([^\n]*paged_attention|paged_attention_tpu", text)),
        "versions": {"jax": jax.__version__, "compiler": devices[0].client.platform_version},
    }
    return found | (_resources(dump) if target.platform == "cuda" else {})


def _collectives(text: str) -> tuple[dict[str, int], int, int]:
    """Count the program's collectives.

    Returns:
        Those within layers by kind, the number of others (embedding, sampling), and the most
        elements one of the others moves.
    """
    in_layers: dict[str, int] = {}
    outside = largest = 0
    for match in _COLLECTIVE.finditer(text):
        if re.search(r'op_name="[^"]*layer\d+/', match.group(0)):
            in_layers[match.group(2)] = in_layers.get(match.group(2), 0) + 1
        else:
            outside += 1
            for sizes in _ARRAY.findall(match.group(1)):
                largest = max(largest, int(np.prod([int(n) for n in sizes.split(",") if n] or [1])))
    return in_layers, outside, largest


def abstract_weights(config: ModelConfig, mesh: Mesh, dtype: str) -> LlamaWeights:
    """Return the shapes of a model's weights, laid out over a mesh."""
    shapes = tensor_shapes(config)
    weights: LlamaWeights = jax.eval_shape(
        lambda: from_tensors(config, lambda name: jnp.zeros(shapes[name], dtype), dtype)  # type: ignore[arg-type,return-value]
    )
    placed: LlamaWeights = jax.tree.map(_placed, weights, sharding.shardings(weights, mesh))
    return placed


def _compile(
    job: Job, target: Target, config: ModelConfig, mesh: Mesh, tokens: int
) -> jax.stages.Compiled:
    D, G, BQ = STEPS["decode" if job.step == "kernel" else job.step]
    pages = -(-job.context // job.page_size)
    shape = Shape(D=D, G=G, BQ=BQ, P=pages, X=0, Q=0, top=0)
    everywhere = NamedSharding(mesh, sharding.REPLICATED)
    batch = jax.tree.map(lambda x: _placed(x, everywhere), dummy_batch(shape, config.vocab_size))
    pool = NamedSharding(mesh, sharding.POOL)
    kv = jax.eval_shape(lambda: make_kv(config, tokens, job.dtype, target.platform, pool))
    kv = jax.tree.map(lambda x: _placed(x, pool), kv)
    # What kernels ask of their device while they are lowered.
    abstract = mesh.abstract_mesh
    attention, vocab = _attention(job, target), WHOLE
    if job.tensor > 1:
        attention = ShardedAttention(attention, abstract, sharding.TENSOR)
        vocab = Vocab(abstract, sharding.TENSOR)
    with jax.sharding.use_abstract_mesh(abstract):
        if job.step == "kernel":
            heads = NamedSharding(mesh, sharding.HEADS)
            q, k = (
                _placed(jax.ShapeDtypeStruct((shape.T, n, config.head_dim), job.dtype), heads)  # type: ignore[no-untyped-call]
                for n in (config.num_heads, config.num_kv_heads)
            )
            traced = jax.jit(attention, donate_argnums=(3, 4)).trace(
                q, k, k, kv.k[0], kv.v[0], batch.layout
            )
        else:
            words = -(-config.vocab_size // 32)
            masks = _placed(jax.ShapeDtypeStruct((MASK_ROWS, words), jnp.uint32), everywhere)  # type: ignore[no-untyped-call]
            traced = jax.jit(
                step,
                static_argnames=("config", "attention", "top", "valid_vocab", "vocab"),
                donate_argnames=("kv",),
            ).trace(
                config, abstract_weights(config, mesh, job.dtype), kv, masks, batch,
                attention=attention, top=0, valid_vocab=load_preset(job.model).config.vocab_size,
                vocab=vocab,
            )  # fmt: skip
        compiled: jax.stages.Compiled = traced.lower(
            lowering_platforms=(target.platform,)
        ).compile()
        return compiled


def _attention(job: Job, target: Target) -> Attention:
    if target.platform == "cuda":
        return dataclasses.replace(PallasGpuAttention(job.page_size), **job.tile)  # type: ignore[arg-type]
    return dataclasses.replace(PallasTpuAttention(job.page_size), **job.tile)  # type: ignore[arg-type]


def _placed(x: Any, where: NamedSharding) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)  # type: ignore[no-untyped-call]


def _bytes_a_device(tree: Any) -> int:
    return sum(
        int(np.prod(x.sharding.shard_shape(x.shape))) * DTYPE_BYTES[x.dtype.name]
        for x in jax.tree.leaves(tree)
    )


def _resources(dump: Path) -> dict[str, int]:
    """Return what the paged kernels need, from the dumped PTX and thunks; the worst of each."""
    registers = spills = shared = -1
    assembler = ptxas()
    for ptx in dump.glob("*.ptx") if assembler else ():
        text = ptx.read_text()
        arch = re.search(r"^\.target\s+(\w+)", text, re.M)
        if arch is None or "paged_attention" not in text:
            continue
        done = subprocess.run(
            [str(assembler), f"-arch={arch.group(1)}", "-v", str(ptx), "-o", "/dev/null"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        for part in done.stderr.split("Compiling entry function")[1:]:
            if "paged_attention" in part.splitlines()[0]:
                registers = max(registers, *map(int, re.findall(r"Used (\d+) registers", part)))
                spills = max(spills, *map(int, re.findall(r"(\d+) bytes spill stores", part)))
    for thunks in dump.glob("*thunk_sequence*"):
        for line in thunks.read_text().splitlines():
            if "paged_attention" in line:
                sizes = re.findall(r"(?:shmem|shared_memory)\w*\s*[:=]\s*(\d+)", line)
                shared = max([shared, *map(int, sizes)])
    return {"registers": registers, "spills": spills, "shared_bytes": shared}


if __name__ == "__main__":
    main()
