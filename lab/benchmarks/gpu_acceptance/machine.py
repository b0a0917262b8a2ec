"""Stage 0: what the machine has, and what everything else is compared with: bandwidth, arithmetic, the cost of a node
of a CUDA graph, and what attention costs at a length that it has not seen."""

from __future__ import annotations

import platform
import time
from importlib import metadata
from typing import Any

import torch
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention

from lab.benchmarks.gpu_acceptance.context import Context, NotPossibleHere

_GRAPH_NODES = 500
_NEW_LENGTHS = (301, 433, 569, 701, 839)
"""Numbers of keys that nothing else here uses."""


def run(context: Context) -> None:
    """Run the stage."""
    context.check("versions", lambda: versions(context))
    context.check("attention backends, in order", attention_backends)
    context.check("copy bandwidth", lambda: {"GB/s": copy_bandwidth(context)})
    context.check("matrix product", lambda: matrix_product(context))
    context.check("cost of a graph node", lambda: graph_node(context))
    for cudnn in (False, True):
        context.check(
            f"attention at new lengths, cuDNN {'on' if cudnn else 'off'}", lambda c=cudnn: new_lengths(context, c)
        )


def versions(context: Context) -> dict[str, Any]:
    """Versions, and the device."""
    found: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("triton", "numpy", "safetensors", "tokenizers", "gguf"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "none"
    found |= {"cuda": torch.version.cuda, "machine": platform.machine(), "threads": torch.get_num_threads()}
    if context.on_gpu:
        properties = torch.cuda.get_device_properties(context.device)
        found |= {
            "device": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "memory GB": properties.total_memory / 1e9,
            "cudnn": torch.backends.cudnn.version(),
        }
    return found


def attention_backends() -> dict[str, Any]:
    """The implementations of attention, in the order in which torch tries them, and which are enabled."""
    order = [SDPBackend(number).name for number in torch._C._get_sdp_priority_order()]
    enabled = {
        name: getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in ("flash", "mem_efficient", "cudnn")
    }
    return {"order": order, **enabled}


def copy_bandwidth(context: Context) -> float:
    """GB/s of a copy within the device's memory, read and written bytes counted."""
    size = (4 << 30) if context.on_gpu else (64 << 20)
    source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=context.device)
    target = torch.empty_like(source)
    return 2 * size / context.milliseconds(lambda: target.copy_(source)) / 1e6


def matrix_product(context: Context) -> dict[str, Any]:
    """TFLOP/s of a large product in bfloat16."""
    size, dtype = (8192, torch.bfloat16) if context.on_gpu else (512, torch.float32)
    left, right = (torch.randn(size, size, device=context.device).to(dtype) for _ in "ab")
    return {"size": size, "TFLOP/s": 2 * size**3 / context.milliseconds(lambda: left @ right) / 1e9}


def graph_node(context: Context) -> dict[str, Any]:
    """µs that a small kernel takes in a graph in which each depends on the one before."""
    if not context.on_gpu:
        raise NotPossibleHere("needs CUDA graphs")
    x = torch.randn(1024, device=context.device)

    def kernels() -> None:
        for _ in range(_GRAPH_NODES):
            x.mul_(0.999)

    kernels()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernels()
    return {"us": context.milliseconds(graph.replay) * 1e3 / _GRAPH_NODES}


def new_lengths(context: Context, cudnn: bool) -> dict[str, Any]:
    """ms of the first call of masked attention at each new number of keys, forward and backward."""
    if cudnn and not context.on_gpu:
        raise NotPossibleHere("needs cuDNN")
    dtype = torch.bfloat16 if context.on_gpu else torch.float32
    times: dict[str, list[float]] = {"forward ms": [], "backward ms": []}
    torch.backends.cuda.enable_cudnn_sdp(cudnn)
    try:
        for length in _NEW_LENGTHS:
            query = torch.randn(2, 2, 63, 64, device=context.device, dtype=dtype, requires_grad=True)
            key, value = (torch.randn(2, 2, length, 64, device=context.device, dtype=dtype) for _ in "kv")
            mask = torch.ones(63, length, dtype=torch.bool, device=context.device).tril_(length - 63)
            context.synchronize()
            began = time.perf_counter()
            out = scaled_dot_product_attention(query, key, value, attn_mask=mask)
            context.synchronize()
            middle = time.perf_counter()
            out.sum().backward()
            context.synchronize()
            times["forward ms"].append(round((middle - began) * 1e3, 2))
            times["backward ms"].append(round((time.perf_counter() - middle) * 1e3, 2))
    finally:
        torch.backends.cuda.enable_cudnn_sdp(False)
    return dict(times)
