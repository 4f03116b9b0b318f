"""As much of CUDA's driver as a load needs: it comes with every driver, PyTorch does not."""

from __future__ import annotations

import ctypes
from typing import Any

LIBRARY = "libcuda.so.1"
THREADS = 256
BUFFER_BYTES = 1 << 30

PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry multiply(.param .u64 out, .param .u32 rounds)
{
  .reg .pred %p<2>;
  .reg .b32 %r<16>;
  .reg .f32 %f<20>;
  .reg .b64 %d<6>;
  ld.param.u64 %d1, [out];
  ld.param.u32 %r1, [rounds];
  mov.b32 %r4, 0x3c003c00;
  mov.f32 %f1, 0f00000000;
  mov.f32 %f2, %f1;
  mov.f32 %f3, %f1;
  mov.f32 %f4, %f1;
  mov.f32 %f5, %f1;
  mov.f32 %f6, %f1;
  mov.f32 %f7, %f1;
  mov.f32 %f8, %f1;
  mov.f32 %f9, %f1;
  mov.f32 %f10, %f1;
  mov.f32 %f11, %f1;
  mov.f32 %f12, %f1;
  mov.f32 %f13, %f1;
  mov.f32 %f14, %f1;
  mov.f32 %f15, %f1;
  mov.f32 %f16, %f1;
again:
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    {%f1, %f2, %f3, %f4}, {%r4, %r4, %r4, %r4}, {%r4, %r4}, {%f1, %f2, %f3, %f4};
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    {%f5, %f6, %f7, %f8}, {%r4, %r4, %r4, %r4}, {%r4, %r4}, {%f5, %f6, %f7, %f8};
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    {%f9, %f10, %f11, %f12}, {%r4, %r4, %r4, %r4}, {%r4, %r4}, {%f9, %f10, %f11, %f12};
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    {%f13, %f14, %f15, %f16}, {%r4, %r4, %r4, %r4}, {%r4, %r4}, {%f13, %f14, %f15, %f16};
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra again;
  add.f32 %f17, %f1, %f5;
  add.f32 %f18, %f9, %f13;
  add.f32 %f19, %f17, %f18;
  mov.u32 %r5, %tid.x;
  mov.u32 %r6, %ctaid.x;
  mov.u32 %r7, %ntid.x;
  mad.lo.u32 %r8, %r6, %r7, %r5;
  mul.wide.u32 %d2, %r8, 4;
  add.u64 %d3, %d1, %d2;
  st.global.f32 [%d3], %f19;
  ret;
}
\0"""
"""Multiplies small matrices of ones in registers, on the tensor cores of Ampere and newer."""

_MULTIPROCESSORS = 16


class CudaError(Exception):
    """The driver cannot do it."""


class Cuda:
    """The first GPU that CUDA may use.

    Raises:
        CudaError: If there is none, or no driver.
    """

    def __init__(self) -> None:
        try:
            self._cuda: Any = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise CudaError(f"{LIBRARY} cannot be loaded: {error}") from None
        self._call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        count = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(count), _MULTIPROCESSORS, device)
        self._blocks = 8 * count.value
        self._from, self._to = self._memory(), self._memory()
        self._kernel: ctypes.c_void_p | None = None

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._cuda, name)(*arguments)
        if status:
            raise CudaError(f"{name} returns {status}")

    def _memory(self) -> ctypes.c_uint64:
        memory = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(BUFFER_BYTES))
        return memory

    def multiply(self, rounds: int = 200_000) -> None:
        """Keep the tensor cores at work for a moment.

        Raises:
            CudaError: If the GPU has none that are known here, or fails.
        """
        if self._kernel is None:
            module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
            self._call("cuModuleLoadData", ctypes.byref(module), PTX)
            self._call("cuModuleGetFunction", ctypes.byref(kernel), module, b"multiply")
            self._kernel = kernel
        count = ctypes.c_uint32(rounds)
        arguments = (ctypes.c_void_p * 2)(ctypes.addressof(self._to), ctypes.addressof(count))
        shape = (self._blocks, 1, 1, THREADS, 1, 1)
        self._call("cuLaunchKernel", self._kernel, *shape, 0, None, arguments, None)
        self._call("cuCtxSynchronize")

    def copy(self, times: int = 100) -> None:
        """Copy within the GPU's memory for a moment.

        Raises:
            CudaError: If the GPU fails.
        """
        for _ in range(times):
            size = ctypes.c_size_t(BUFFER_BYTES)
            self._call("cuMemcpyDtoDAsync_v2", self._to, self._from, size, None)
        self._call("cuCtxSynchronize")
