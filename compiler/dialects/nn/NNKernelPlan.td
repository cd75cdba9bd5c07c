// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The plan of how a kernel computes, as an attribute: `plan-kernels` writes it,
// people may edit it in a dump, `verify-kernels` checks it, and code generation
// builds the loops from it. It holds decisions only. The rest (which values a
// loop computes, at which index) is derived from the kernel's body.
#ifndef FSDPC_NN_KERNEL_PLAN
#define FSDPC_NN_KERNEL_PLAN

include "compiler/dialects/nn/NNBase.td"

def NN_KernelTemplate : I32EnumAttr<"KernelTemplate", "template of a kernel's loops", [
    I32EnumAttrCase<"map", 0>, I32EnumAttrCase<"row", 1>, I32EnumAttrCase<"column", 2>,
    I32EnumAttrCase<"embedding_grad", 3>]> {
  let cppNamespace = "::fsdpc::nn";
}

def NN_KernelPlan : AttrDef<NN_Dialect, "KernelPlan"> {
  let mnemonic = "kernel_plan";
  let summary = "template, loops and outer range of a kernel";
  let description = [{
    Written on a kernel as `nn.plan`. The templates are

    - `map`: each element of the outputs by itself. A row is a run of `lanes` elements.
    - `row`: reductions and elementwise code in loops over one row. With `rows_per_block`,
      rows are also added up in blocks, element by element.
    - `column`: reductions over leading axes. Lanes are columns, and the rows are the outer
      loop.
    - `embedding_grad`: lanes are the columns of the table, the outer loop runs over ids.

    `rows` is the number of rows (for `column`: of runs of columns). `stages` has one entry
    per loop nest that a row needs, in order: `lanes`, or `outer * lanes` for a loop around
    the lanes' loop. The lanes are cut into `blocks` blocks of `block_lanes`, each a step of
    the range; with `rows_inside` the range visits a block of all rows before the next block.
    Threads divide the `extent` steps of the range among them, at least `grain` at a time.
    `stack` is the number of bytes that a call needs on its stack.

    Which values a row keeps in memory from one stage to the next is marked on their ops
    (`nn.kept`).

    **Constraints**
    - All numbers are positive, `stack` and the size of blocks apart, which may be 0.
    - There is one stage or more, each with lanes.
    - The outputs have `rows` · `outer` · `lanes` elements per stage that computes them, and
      blocks cover the lanes (`verify-kernels`).
    - `extent` is `rows` · `blocks` / `rows_per_block`.

    Example:
    ```mlir
    #nn.kernel_plan<row rows 40 stages[48, 48, 1] extent 2 grain 1 rows_per_block 20 stack 256>
    ```
  }];
  let parameters = (ins
    EnumParameter<NN_KernelTemplate>:$kernelTemplate,
    "int64_t":$rows,
    ArrayRefParameter<"int64_t">:$outer,
    ArrayRefParameter<"int64_t">:$lanes,
    "int64_t":$extent,
    "int64_t":$grain,
    DefaultValuedParameter<"int64_t", "1">:$blocks,
    DefaultValuedParameter<"int64_t", "0">:$blockLanes,
    DefaultValuedParameter<"bool", "false">:$rowsInside,
    DefaultValuedParameter<"int64_t", "1">:$rowsPerBlock,
    DefaultValuedParameter<"int64_t", "0">:$stackBytes);
  let assemblyFormat = [{
    `<` $kernelTemplate `rows` $rows `stages` `[` custom<Stages>($outer, $lanes) `]`
        `extent` $extent `grain` $grain
        (`blocks` $blocks^)? (`block_lanes` $blockLanes^)? (`rows_inside` $rowsInside^)?
        (`rows_per_block` $rowsPerBlock^)? (`stack` $stackBytes^)? `>`
  }];
  let genVerifyDecl = 1;
}

def NN_Grid : AttrDef<NN_Dialect, "Grid"> {
  let mnemonic = "grid";
  let summary = "grid of threads that computes a kernel on a GPU";
  let description = [{
    Written on a kernel as `nn.grid` (`plan-grids`), beside the plan of its loops. A grid is
    `blocks` blocks of `threads` threads. `widths` has the lanes that a thread computes at a
    time, one number per stage of the plan. The other numbers belong to one template each:

    - `vectors` (map): vectors per thread, one after the other.
    - `team` (row): threads that share a row: one or four warps, or a block. With
      `sums_in_registers` they keep the sums of rows that are added up in blocks.
    - `across` (column): threads that lie side by side on columns; the other lines of the
      block take other rows.
    - `table_rows` (embedding_grad): rows of the table per block.

    An optimizer has 0 blocks: the runtime launches one per segment of a shard.

    **Constraints**
    - All numbers are positive, `blocks` of an optimizer apart.
    - The grid covers the kernel, and all vectors are aligned (`verify-grids`).

    Example:
    ```mlir
    #nn.grid<blocks 8 threads 128 widths[4] across 8>
    ```
  }];
  let parameters = (ins
    "int64_t":$blocks,
    "int64_t":$threads,
    OptionalArrayRefParameter<"int64_t">:$widths,
    DefaultValuedParameter<"int64_t", "1">:$vectors,
    DefaultValuedParameter<"int64_t", "1">:$team,
    DefaultValuedParameter<"bool", "false">:$sumsInRegisters,
    DefaultValuedParameter<"int64_t", "1">:$across,
    DefaultValuedParameter<"int64_t", "1">:$tableRows);
  let assemblyFormat = [{
    `<` `blocks` $blocks `threads` $threads (`widths` `[` $widths^ `]`)? (`vectors` $vectors^)?
        (`team` $team^)? (`sums_in_registers` $sumsInRegisters^)? (`across` $across^)?
        (`table_rows` $tableRows^)? `>`
  }];
  let genVerifyDecl = 1;
}

#endif
