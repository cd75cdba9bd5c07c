// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Work on the stream `compute`: the launch of an outlined kernel, and the calls of
// libraries for matrix products, convolution and pooling, each with its plan.
#ifndef FSDPC_RT_COMPUTE
#define FSDPC_RT_COMPUTE

include "compiler/dialects/rt/RTBase.td"

def RT_LaunchOp : RT_Command<"launch", "compute",
    [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
     DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Runs an outlined kernel";
  let description = [{
    Calls `fsdpc_launch` on stream `compute`. The kernel is a function whose body is
    `nn` ops; code generation compiles it to one loop nest. `buffers` are its
    operands, which it reads, then its results, which it writes. On the host the
    runtime cuts the kernel's outer range into pieces of at least its grain and gives
    them to the rank's threads; on a GPU the kernel is a grid of blocks of threads.

    **Constraints**
    - `kernel` names a function marked `nn.kernel`.
    - There is one buffer per operand and per result of the kernel.

    Example:
    ```mlir
    func.func private @gelu_8x48(%x: tensor<8x48xf32>) -> tensor<8x48xf32> attributes {nn.kernel} {
      %y = nn.gelu erf %x : tensor<8x48xf32>
      return %y : tensor<8x48xf32>
    }
    %x = rt.pointer arena + 0 bytes 1536
    %y = rt.pointer arena + 1536 bytes 1536
    rt.launch @gelu_8x48(%x, %y)
    ```
  }];
  let arguments = (ins RT_Kernel<>:$kernel, RT_Buffers<"sizes.buffersOf(getKernelAttr())">:$buffers);
  let assemblyFormat = "$kernel `(` $buffers `)` attr-dict";
}

def RT_MatmulPlan : AttrDef<RT_Dialect, "MatmulPlan",
    [DeclareAttrInterfaceMethods<PlanAttrInterface>]> {
  let mnemonic = "matmul";
  let summary = "shape, strides and types of a batched matrix product";
  let description = [{
    Says what `rt.matmul` computes: C[i] = A[i] · B[i] for each index i of `batch`,
    with A m×k, B k×n and C m×n, all row-major. `transposeA` and `transposeB` say
    that the matrix is stored k×m or n×k. `strideA`, `strideB` and `strideC` are
    the distances between matrices in elements, one per batch dimension; 0 repeats
    one matrix. `accumulate` adds the product to what C holds, `bias` adds one row
    of n elements to each row, and `addend` another m×n matrix of C's strides. On GPUs
    `epilogue` says what becomes of the sums, as `nn.fused_matmul` describes it ("gelu_extra"
    is "gelu" with its second result), and `library` names the library; both are absent on
    the host.
  }];
  let parameters = (ins "::mlir::DenseI64ArrayAttr":$batch,
      "::mlir::DenseI64ArrayAttr":$strideA, "::mlir::DenseI64ArrayAttr":$strideB,
      "::mlir::DenseI64ArrayAttr":$strideC, "int64_t":$m, "int64_t":$n, "int64_t":$k,
      "bool":$transposeA, "bool":$transposeB, "::mlir::Type":$a, "::mlir::Type":$b,
      "::mlir::Type":$c, "bool":$accumulate, DefaultValuedParameter<"bool", "false">:$bias,
      DefaultValuedParameter<"bool", "false">:$addend,
      OptionalParameter<"::mlir::StringAttr">:$epilogue,
      OptionalParameter<"::mlir::StringAttr">:$library);
  let assemblyFormat = [{
    `<` $m `x` $n `x` $k `,` $a `,` $b `->` $c `batch` $batch `strides` $strideA `,` $strideB `,`
    $strideC `transposed` $transposeA `,` $transposeB `accumulate` $accumulate
    (`bias` $bias^)? (`addend` $addend^)? (`epilogue` $epilogue^)?
    (`library` $library^)? `>`
  }];
  let extraClassDeclaration = [{
    /// Return the bytes from the first element of a tensor to its last, over the whole batch.
    /// An addend and the input of GELU have those of C.
    int64_t bytesOfA() const;
    int64_t bytesOfB() const;
    int64_t bytesOfC() const;
    int64_t bytesOfBias() const;
    int64_t bytesOfExtra() const;
  }];
}

def RT_MatmulOp : RT_Command<"matmul", "compute", [AttrSizedOperandSegments]> {
  let summary = "Multiplies matrices";
  let description = [{
    Calls `fsdpc_matmul` on stream `compute`. Reads `a`, `b`, `bias`, `addend` and `input`,
    writes `c` and `extra`; where the plan accumulates, it reads `c` too. Sums are f32.

    **Constraints**
    - `bias` and `addend` are present where the plan has `bias true` or `addend true`, and
      only there. A plan that accumulates has neither.
    - `input` is the input of GELU, for the epilogue "gelu_grad". `extra` is the second result
      of "gelu_extra", "sum_lhs" and "sum_rhs".

    Example:
    ```mlir
    %x = rt.pointer input @x + 0 bytes 8192
    %w = rt.pointer arena + 0 bytes 2048
    %y = rt.pointer arena + 2048 bytes 4096
    rt.matmul <64 x 16 x 32, f32, f32 -> f32 batch [] strides [], [], [] transposed false, true accumulate false> %x, %w -> %y
    ```
  }];
  let arguments = (ins RT_PlanIndex<RT_MatmulPlan>:$plan, RT_Read<"getPlan().bytesOfA()">:$a,
                       RT_Read<"getPlan().bytesOfB()">:$b,
                       RT_Read<"getPlan().bytesOfBias()", Optional<RT_Pointer>>:$bias,
                       RT_Read<"getPlan().bytesOfC()", Optional<RT_Pointer>>:$addend,
                       RT_Read<"getPlan().bytesOfC()", Optional<RT_Pointer>>:$input,
                       RT_Updated<"getPlan().bytesOfC()">:$c,
                       RT_Written<"getPlan().bytesOfExtra()", Optional<RT_Pointer>>:$extra);
  let assemblyFormat = [{
    $plan $a `,` $b (`bias` $bias^)? (`plus` $addend^)? (`input` $input^)? `->` $c
    (`,` $extra^)? attr-dict
  }];
}

def RT_ConvolutionPlan : AttrDef<RT_Dialect, "ConvolutionPlan",
    [DeclareAttrInterfaceMethods<PlanAttrInterface>]> {
  let mnemonic = "convolution";
  let summary = "shape and kind of a 2-D convolution";
  let description = [{
    `kind` is "forward", "input" (the input's cotangent) or "weight" (the filter's).
    `input` is N, C, H, W, `filter` is O, C / groups, H, W and `output` N, O, H, W,
    those of the forward whatever the kind. `pads` are top, left, bottom, right.
    `library` names the library on GPUs and is absent on the host.
  }];
  let parameters = (ins StringRefParameter<>:$kind, "::mlir::Type":$element,
      "::mlir::DenseI64ArrayAttr":$input, "::mlir::DenseI64ArrayAttr":$filter,
      "::mlir::DenseI64ArrayAttr":$output, "::mlir::DenseI64ArrayAttr":$strides,
      "::mlir::DenseI64ArrayAttr":$pads, "::mlir::DenseI64ArrayAttr":$dilations,
      "int64_t":$groups, OptionalParameter<"::mlir::StringAttr">:$library);
  let assemblyFormat = [{
    `<` $kind `,` $element `,` $input `,` $filter `->` $output `strides`
    $strides `pads` $pads `dilations` $dilations `groups` $groups
    (`library` $library^)? `>`
  }];
  let extraClassDeclaration = [{
    /// Return the bytes of an operand of `rt.convolution`, by kind.
    int64_t bytesOfX() const;
    int64_t bytesOfW() const;
    int64_t bytesOfY() const;
  }];
}

def RT_ConvolutionOp : RT_Command<"convolution", "compute"> {
  let summary = "Convolves images, or computes a cotangent of that";
  let description = [{
    Calls `fsdpc_convolution` on stream `compute`. Reads `x` and `w`, writes `y`:

    | kind of the plan | `x` | `w` | `y` |
    |---|---|---|---|
    | "forward" | input | filter | output |
    | "input" | output's cotangent | filter | input's cotangent |
    | "weight" | input | output's cotangent | filter's cotangent |

    **Constraints**
    - The plan's shapes obey the constraints of `nn.conv2d`.

    Example:
    ```mlir
    %x = rt.pointer input @images + 0 bytes 2048
    %w = rt.pointer arena + 0 bytes 432
    %y = rt.pointer arena + 448 bytes 768
    rt.convolution <"forward", f32, [2, 4, 8, 8], [6, 2, 3, 3] -> [2, 6, 4, 4] strides [2, 2] pads [1, 1, 1, 1] dilations [1, 1] groups 2> %x, %w -> %y
    ```
  }];
  let arguments = (ins RT_PlanIndex<RT_ConvolutionPlan>:$plan, RT_Read<"getPlan().bytesOfX()">:$x,
                       RT_Read<"getPlan().bytesOfW()">:$w, RT_Written<"getPlan().bytesOfY()">:$y);
  let assemblyFormat = "$plan $x `,` $w `->` $y attr-dict";
}

def RT_PoolingPlan : AttrDef<RT_Dialect, "PoolingPlan",
    [DeclareAttrInterfaceMethods<PlanAttrInterface>]> {
  let mnemonic = "pooling";
  let summary = "shape and kind of a 2-D pooling";
  let description = [{
    `kind` is "max", "average", "max_grad" or "average_grad". `input` and `output`
    are N, C, H, W of the forward whatever the kind; `pads` are top, left, bottom,
    right. With `count_padding true` an average divides by the window's size, else
    by the number of its elements within the image. `library` names the library on
    GPUs and is absent on the host.
  }];
  let parameters = (ins StringRefParameter<>:$kind, "::mlir::Type":$element,
      "::mlir::DenseI64ArrayAttr":$input, "::mlir::DenseI64ArrayAttr":$output,
      "::mlir::DenseI64ArrayAttr":$kernel, "::mlir::DenseI64ArrayAttr":$strides,
      "::mlir::DenseI64ArrayAttr":$pads, "bool":$countPadding,
      OptionalParameter<"::mlir::StringAttr">:$library);
  let assemblyFormat = [{
    `<` $kind `,` $element `,` $input `->` $output `kernel` $kernel
    `strides` $strides `pads` $pads `count_padding` $countPadding
    (`library` $library^)? `>`
  }];
  let extraClassDeclaration = [{
    /// Return the bytes of an operand of `rt.pooling`, by kind.
    int64_t bytesOfSource() const;
    int64_t bytesOfDestination() const;
    int64_t bytesOfWorkspace() const;
  }];
}

def RT_PoolingOp : RT_Command<"pooling", "compute"> {
  let summary = "Pools images, or computes the cotangent of that";
  let description = [{
    Calls `fsdpc_pooling` on stream `compute`. `source` is read and `destination`
    written. Kind "max" also writes `workspace`, an i32 per output element: the
    position of the maximum within its window. Kind "max_grad" reads it.

    **Constraints**
    - The kinds "max" and "max_grad" have a workspace, the others none.
    - The plan's shapes obey the constraints of `nn.max_pool2d`.

    Example:
    ```mlir
    %x = rt.pointer arena + 0 bytes 2048
    %y = rt.pointer arena + 2048 bytes 512
    %index = rt.pointer arena + 2560 bytes 512
    rt.pooling <"max", f32, [2, 4, 8, 8] -> [2, 4, 4, 4] kernel [3, 3] strides [2, 2] pads [1, 1, 1, 1] count_padding false> %x -> %y workspace %index
    ```
  }];
  let arguments = (ins RT_PlanIndex<RT_PoolingPlan>:$plan, RT_Read<"getPlan().bytesOfSource()">:$source,
                       RT_Written<"getPlan().bytesOfDestination()">:$destination,
                       RT_Updated<"getPlan().bytesOfWorkspace()", Optional<RT_Pointer>>:$workspace);
  let assemblyFormat = "$plan $source `->` $destination (`workspace` $workspace^)? attr-dict";
}

#endif
