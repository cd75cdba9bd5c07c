// Stage `import`: what is said in many nn ops is said in one.
#ifndef FSDPC_PASSES_IMPORT
#define FSDPC_PASSES_IMPORT

include "mlir/Pass/PassBase.td"

def FoldWeightTransposes : Pass<"fold-weight-transposes", "::mlir::ModuleOp"> {
  let summary = "Folds transposes of weights into the products that read them";
  let description = [{
    Exporters write a linear layer as a transpose of its weight and a product. The
    product reads the weight as it lies instead, so that no copy is made. A
    transpose that swaps other axes, or that something else reads, stays.

    Before:
    ```mlir
    %w = fsdp.load @w : tensor<8x4xf32>
    %t = nn.transpose %w [1, 0] : tensor<8x4xf32> -> tensor<4x8xf32>
    %y = nn.matmul %x, %t : tensor<2x4xf32>, tensor<4x8xf32> -> tensor<2x8xf32>
    ```
    After:
    ```mlir
    %w = fsdp.load @w : tensor<8x4xf32>
    %y = nn.matmul %x, %w {transpose_b} : tensor<2x4xf32>, tensor<8x4xf32> -> tensor<2x8xf32>
    ```
  }];
  let dependentDialects = ["::fsdpc::nn::NNDialect", "::fsdpc::fsdp::FSDPDialect"];
  let statistics = [Statistic<"folded", "folded", "Transposes of weights folded">];
}

def RecogniseComposites : Pass<"recognise-composites", "::mlir::ModuleOp"> {
  let summary = "Finds the composites that exporters decompose";
  let description = [{
    Attention (scaled products, softmax, its NaN clean-up, masks, grouped heads),
    RMSNorm and LayerNorm, GELU, SiLU, rotary embedding, cross-entropy, and the
    product before it where nothing else reads the logits. A mask is
    taken apart: a lower triangle becomes `causal`, a mask that keeps everything
    goes, an additive mask of zeroes and lowest numbers becomes boolean, and what
    is broadcast stays small. A mask that a parameter reaches is left alone:
    attention gives masks no gradient.

    The module's `fsdp.recognised` counts the composites that it has after the
    pass, for the summary.

    Before:
    ```mlir
    %s = nn.sigmoid %x : tensor<4x8xf32>
    %y = nn.mul %x, %s : tensor<4x8xf32>
    ```
    After:
    ```mlir
    %y = nn.silu %x : tensor<4x8xf32>
    ```
  }];
  let dependentDialects = ["::fsdpc::nn::NNDialect", "::fsdpc::fsdp::FSDPDialect"];
  let statistics = [
    Statistic<"attention", "attention", "nn.attention after the pass">,
    Statistic<"rmsNorm", "rms_norm", "nn.rms_norm after the pass">,
    Statistic<"layerNorm", "layer_norm", "nn.layer_norm after the pass">,
    Statistic<"gelu", "gelu", "nn.gelu after the pass">,
    Statistic<"silu", "silu", "nn.silu after the pass">,
    Statistic<"rotary", "rotary", "nn.rotary after the pass">,
    Statistic<"crossEntropy", "cross_entropy", "nn.cross_entropy after the pass">,
    Statistic<"linearCrossEntropy", "linear_cross_entropy", "nn.linear_cross_entropy after the pass">
  ];
}

def VerifyInput : Pass<"verify-input", "::mlir::ModuleOp"> {
  let summary = "Checks what holds after the phase `import`";
  let description = [{
    **Constraints**
    - `@microbatch` has one block and no results, and returns nothing.
    - Each argument has a name (`fsdp.input`), each name one argument.
    - Its ops are of the dialects nn and fsdp.
    - Loads name a parameter or buffer of their type, updates of statistics a buffer.
    - One loss is reported, and a trainable parameter reaches it.
    - `nn.scope` and `nn.class` have equal lengths.
  }];
  let dependentDialects = ["::fsdpc::nn::NNDialect", "::fsdpc::fsdp::FSDPDialect"];
}

#endif
