// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes of the phase `import`: they find the composites that exporters wrote in
// many ops, so that later phases see attention and norms by name.
#ifndef FSDPC_PASSES_IMPORT
#define FSDPC_PASSES_IMPORT

include "mlir/Pass/PassBase.td"

def FoldWeightTransposes : Pass<"fold-weight-transposes", "::mlir::ModuleOp"> {
  let summary = "Folds transposes of weights into the products that read them";
  let description = [{
    Exporters write a linear layer as a transpose of its weight and a product. After
    the pass the product reads the weight as it is stored, and no copy is made. A
    transpose stays if it swaps other axes than the last two, or if anything but
    products reads it.

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
    Recognises attention (scaled products, softmax, its NaN clean-up, masks, grouped
    heads), RMSNorm, LayerNorm, GELU, SiLU, rotary embedding and cross-entropy, and
    joins cross-entropy with the product before it where nothing else reads the logits.

    Sums of exponentials and logarithms that overflow or lose their result in rounding
    become stable ops: log(1 + x), exp(x) - 1, softplus, log(sigmoid(x)), and binary
    cross-entropy with logits, which is made of them. Binary cross-entropy of
    probabilities, whose logarithms are clamped at -100, gets PyTorch's gradient, which
    is finite where a probability is 0 or 1.

    A mask of attention is taken apart: a lower triangle becomes `causal`, a mask that
    keeps everything is dropped, an additive mask of zeros and lowest numbers becomes
    boolean, and a mask that was broadcast stays small. A mask that depends on a
    parameter is left alone, because attention gives masks no gradient.

    A boolean mask gives zeros in a row that keeps no key; an additive mask of finite
    numbers weighs all keys alike there. So a mask of finite numbers becomes boolean only
    if each query keeps its own key under all masks. Otherwise it stays additive, and
    scores that are replaced by a finite number stay products and a softmax.

    `fsdp.recognised` on the module counts the composites after the pass, for the
    summary that fsdpc prints.

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
    Refuses a module that breaks one of these rules, and changes nothing.

    **Constraints**
    - `@microbatch` has one block and no results, and returns nothing.
    - Each argument has a name (`fsdp.input`), and no two have the same.
    - No parameter or buffer has the name of another one, or of no tensor, in saved files.
    - Its ops are of the dialects nn and fsdp.
    - A load names a parameter or buffer of its type, an update of statistics a buffer.
    - One loss is reported, and it depends on a trainable parameter.
    - `@evaluate`, if there is one, has the same arguments and reports one loss.
    - A function reports an output (`fsdp.report_output`) once, and `@evaluate` those of
      `@microbatch`, with the same types; the only others are no scalars.

    ```mlir
    func.func @microbatch(%x: tensor<4x8xf32>) {  // error: the argument has no name
      return                                      // error: no loss is reported
    }
    ```
  }];
  let dependentDialects = ["::fsdpc::nn::NNDialect", "::fsdpc::fsdp::FSDPDialect"];
}

#endif
