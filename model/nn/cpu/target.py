"""The instruction sets that there are kernels for, and what their generators need to know of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Isa = Literal["amx", "avx512vnni", "avxvnni", "avx2", "sdot", "portable"]


@dataclass(frozen=True)
class Target:
    """How vectors are computed on a processor.

    Attributes:
        lanes: 32-bit lanes of a vector.
        registers: vector registers.
        vectors: vectors of outputs in a tile of a multiplication with as many rows as fit. With two, an activation is
            loaded once for both.
        features: what LLVM may use besides the baseline.
        prefetch_bytes: how far ahead of the weights being read others are prefetched. Without it the hardware's own
            prefetching reached 19 of 24 GB/s. With 4096, six rows and more of Q6_K took 10 to 20 % longer on an AMD
            EPYC (Zen 5), with 8192 few rows 2 to 12 % longer on an Intel Xeon.
        pairs: whether two groups are multiplied together if there are registers for their sums. An Intel Xeon reads two
            streams faster than one; an AMD EPYC does not, as every other group then begins without having been
            prefetched.
    """

    isa: Isa
    lanes: int
    registers: int
    vectors: int
    features: str
    prefetch_bytes: int = 8192
    pairs: bool = False

    @property
    def fused(self) -> bool:
        """Whether a multiplication and an addition are one instruction with one rounding."""
        return self.isa != "portable"

    @property
    def attributes(self) -> str:
        """The attributes of all functions, as the end of a module."""
        features = f' "target-features"="{self.features}"' if self.features else ""
        width = ' "prefer-vector-width"="512"' if self.lanes == 16 else ""
        return f"attributes #0 = {{ nounwind{features}{width} }}"


_AVX512 = "+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512vnni,+f16c,+fma,+avx2"

TARGETS: dict[Isa, Target] = {
    "amx": Target("amx", 16, 32, 1, f"{_AVX512},+amx-tile,+amx-int8", 4096, pairs=True),
    "avx512vnni": Target("avx512vnni", 16, 32, 1, _AVX512),
    "avxvnni": Target("avxvnni", 8, 16, 1, "+avx2,+avxvnni,+f16c,+fma"),
    "avx2": Target("avx2", 8, 16, 1, "+avx2,+f16c,+fma"),
    "sdot": Target("sdot", 4, 32, 2, "+neon,+dotprod,+fullfp16"),
    "portable": Target("portable", 4, 16, 1, ""),
}

_FOR_VECTORS = """
declare <N x float> @llvm.fma.vNf32(<N x float>, <N x float>, <N x float>)
declare <N x float> @llvm.fabs.vNf32(<N x float>)
declare float @llvm.vector.reduce.fmax.vNf32(<N x float>)
declare float @llvm.vector.reduce.fadd.vNf32(float, <N x float>)
declare i32 @llvm.vector.reduce.add.vNi32(<N x i32>)
declare <N x float> @llvm.masked.load.vNf32.p0(ptr, i32, <N x i1>, <N x float>)
declare void @llvm.masked.store.vNf32.p0(<N x float>, ptr, i32, <N x i1>)
"""

DECLARATIONS = """
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare void @llvm.prefetch.p0(ptr, i32, i32, i32)
declare float @llvm.sqrt.f32(float)
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilezero(i8)
declare void @llvm.x86.tileloadd64(i8, ptr, i64)
declare void @llvm.x86.tilestored64(i8, ptr, i64)
declare void @llvm.x86.tdpbssd(i8, i8, i8)
declare <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32>, <64 x i8>, <64 x i8>)
declare <8 x i32> @llvm.x86.avx512.vpdpbusd.256(<8 x i32>, <32 x i8>, <32 x i8>)
declare <16 x i16> @llvm.x86.avx2.pmadd.ub.sw(<32 x i8>, <32 x i8>)
declare <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16>, <16 x i16>)
declare <4 x i32> @llvm.aarch64.neon.sdot.v4i32.v16i8(<4 x i32>, <16 x i8>, <16 x i8>)
""" + "".join(_FOR_VECTORS.replace("N", str(lanes)) for lanes in (16, 8, 4))
