// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The modules of the model that an op comes from, as an attribute.
#ifndef FSDPC_NN_MODULES
#define FSDPC_NN_MODULES

include "compiler/dialects/nn/NNBase.td"
include "mlir/IR/OpAsmInterface.td"

def NN_Modules : AttrDef<NN_Dialect, "Modules", [
    DeclareAttrInterfaceMethods<OpAsmAttrInterface, ["getAlias"]>]> {
  let mnemonic = "modules";
  let summary = "modules of the model that an op comes from";
  let description = [{
    Written on an op as `nn.modules` by the import: the path and the class of each module
    around the op, outermost first, as the exporter wrote them. The root's path is empty.
    The exporter's last entry is the traced call.

    A dump defines each value once, at its top, under a name made of the innermost module
    and the call, so the line of an op stays short.

    **Constraints**
    - There is at least one module, and each has a path and a class.

    Example:
    ```mlir
    #h_0_ln_1_layer_norm = #nn.modules<"": "gpt.GPT", "h.0": "gpt.Block", "h.0.ln_1": "torch.nn.LayerNorm", "layer_norm_2": "aten.layer_norm.default">
    %y = nn.exp %x {nn.modules = #h_0_ln_1_layer_norm} : tensor<4xf32>
    ```
  }];
  let parameters = (ins
    ArrayRefParameter<"::mlir::StringAttr">:$paths,
    ArrayRefParameter<"::mlir::StringAttr">:$classes);
  let assemblyFormat = "`<` custom<Modules>($paths, $classes) `>`";
  let extraClassDeclaration = [{
    /// Returns true if an entry of this class is the traced call of an operator,
    /// and not a module.
    static bool isCall(::llvm::StringRef cls);
  }];
  let genVerifyDecl = 1;
}

#endif
