// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes of code generation: from kernels with plans to the LLVM dialect. The
// pipeline's dumps end before them; code generation runs them on groups of
// kernels, and fsdpc-opt runs them for tests and for experiments. They are for one
// processor, so they have options.
#ifndef FSDPC_CODEGEN_PASSES
#define FSDPC_CODEGEN_PASSES

include "mlir/Pass/PassBase.td"

def EmitKernels : Pass<"emit-kernels", "::mlir::ModuleOp"> {
  let summary = "Emits kernels as loops of vector code";
  let description = [{
    Replaces each kernel with a function `(begin, end, buffers)` that computes the steps
    [begin, end) of the range that the kernel's plan has. `buffers` is an array of
    addresses: of the operands, then of the results. An optimizer gets the elements of a
    shard as its range, and the rows of attention those of a block of scores
    (`runtime/include/fsdpc.h`).

    The loops are those of `nn.plan`. How many vectors of which width one iteration
    computes depends on the processor's registers (`lanes`).

    Before:
    ```mlir
    func.func private @neg(%x: tensor<64xf32>) -> tensor<64xf32> attributes {nn.kernel, nn.plan = #nn.kernel_plan<map rows 1 stages[64] extent 1 grain 1>} {
      %y = nn.neg %x : tensor<64xf32>
      return %y : tensor<64xf32>
    }
    ```
    After:
    ```mlir
    func.func @neg(%begin: i64, %end: i64, %buffers: !llvm.ptr) {
      …
      scf.for %step = %begin to %end step %c1 : i64 {
        scf.for %lane = %c0 to %c64 step %c8 : i64 {
          %p = llvm.getelementptr %x[%lane] : …
          %0 = llvm.load %p : !llvm.ptr -> vector<8xf32>
          %1 = arith.negf %0 : vector<8xf32>
          …
    ```
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
  let options = [
    Option<"lanes", "lanes", "int64_t", "8", "f32 values in a vector register">,
    Option<"roundsBf16", "rounds-bf16", "bool", "false",
           "the processor has an instruction from f32 to bf16">];
}

def ExpandMath : Pass<"expand-math", "::mlir::ModuleOp"> {
  let summary = "Writes exp, log, tanh and erf as arithmetic";
  let description = [{
    On f32, scalars and vectors get the same arithmetic, of at most 2 ulp of error, so the
    tail of a loop has the bits of its body. Other functions, and f64, become calls of
    libm, one per lane.

    Before:
    ```mlir
    %y = math.exp %x : vector<8xf32>
    ```
    After:
    ```mlir
    %0 = arith.mulf %x, %log2e : vector<8xf32>
    %1 = math.roundeven %0 : vector<8xf32>
    …
    ```
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::math::MathDialect", "::mlir::vector::VectorDialect"];
}

def ApproximateMath : Pass<"approximate-math", "::mlir::ModuleOp"> {
  let summary = "Writes tanh, exp and divisions as a GPU's approximate instructions";
  let description = [{
    Works on f32 in each `gpu.func`, lane by lane, for `--math=fast`. The instructions are
    those of PTX: `tanh.approx.f32` (relative error 2^-11), `ex2.approx.ftz.f32` (2 ulp) and
    `rcp.approx.ftz.f32` (1 ulp, and 0 for numbers above 2^126). Optimizers,
    the kernels without `known_grid_size`, are left alone, since they update f32.
    Quotients that `math.floor` or `math.roundeven` reads stay exact.

    It runs before `expand-math`, which would otherwise write these functions as
    arithmetic, and once more after it for the divisions of what that pass writes.

    Before:
    ```mlir
    %y = math.tanh %x : f32
    ```
    After:
    ```mlir
    %y = llvm.inline_asm "tanh.approx.f32 $0, $1;", "=f,f" %x : (f32) -> f32
    ```
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect", "::mlir::vector::VectorDialect"];
}

def LowerKernels : Pass<"lower-kernels", "::mlir::ModuleOp"> {
  let summary = "Lowers emitted kernels to the LLVM dialect";
  let description = [{
    Uses MLIR's own conversions of scf, arith, math, vector, func and cf.

    Before:
    ```mlir
    %1 = arith.negf %0 : vector<8xf32>
    ```
    After:
    ```mlir
    %1 = llvm.fneg %0 : vector<8xf32>
    ```
  }];
  let dependentDialects = ["::mlir::cf::ControlFlowDialect", "::mlir::LLVM::LLVMDialect"];
}

def EmitGrids : Pass<"emit-grids", "::mlir::ModuleOp"> {
  let summary = "Emits kernels as grids of threads";
  let description = [{
    Replaces each kernel with a `gpu.func` of the kernel's name in `gpu.module @kernels`. It
    has a bare pointer per operand, then per result, and computes what one thread of
    `nn.grid` does. Threads that share a row or columns exchange their partial results; no
    memory is updated atomically. Rows of attention are left out, since the CUDA runtime
    brings kernels of its own for them.

    Before:
    ```mlir
    func.func private @neg(%x: tensor<2048xf32>) -> tensor<2048xf32> attributes {nn.grid = #nn.grid<blocks 2 threads 256 widths[4]>, nn.kernel, nn.plan = #nn.kernel_plan<map rows 1 stages[2048] extent 1 grain 1>} {
      %y = nn.neg %x : tensor<2048xf32>
    ```
    After:
    ```mlir
    gpu.module @kernels {
      gpu.func @neg(%x: !llvm.ptr, %y: !llvm.ptr) kernel attributes {known_block_size = array<i32: 256, 1, 1>, known_grid_size = array<i32: 2, 1, 1>} {
        %block = gpu.block_id x
        %thread = gpu.thread_id x
        …
        %0 = llvm.load %p {alignment = 16 : i64} : !llvm.ptr -> vector<4xf32>
        %1 = arith.negf %0 : vector<4xf32>
    ```
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::gpu::GPUDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect", "::mlir::NVVM::NVVMDialect",
    "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect"];
  let options = [
    Option<"roundsBf16", "rounds-bf16", "bool", "true",
           "the processor has an instruction from f32 to bf16">];
}

def LowerGridsToHost : Pass<"lower-grids-to-host", "::mlir::ModuleOp"> {
  let summary = "Turns grids of threads into functions that the host calls";
  let description = [{
    For `--target=cuda-emulation` and for tests. Each `gpu.func` becomes a function
    `(begin, end, buffers)` that runs what one thread does for the blocks [begin, end). With
    one thread per block, that is the whole kernel; with more, the function calls those of
    `compiler/codegen/simt/HostThreads.h`.

    Before:
    ```mlir
    gpu.func @neg(%x: !llvm.ptr, %y: !llvm.ptr) kernel {
      %block = gpu.block_id x
    ```
    After:
    ```mlir
    func.func @neg(%begin: i64, %end: i64, %buffers: !llvm.ptr) {
      scf.for %block = %begin to %end step %c1 : i64 {
    ```
  }];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::LLVM::LLVMDialect", "::mlir::scf::SCFDialect"];
}

#endif
