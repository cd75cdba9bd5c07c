// Passes of the phase `units`.
#ifndef FSDPC_PASSES_UNITS
#define FSDPC_PASSES_UNITS

include "mlir/Pass/PassBase.td"

def SelectTrainable : Pass<"select-trainable", "::mlir::ModuleOp"> {
  let summary = "freezes parameters by --frozen and --trainable";
  let description = [{
    With --trainable only parameters that it matches stay trainable; those that
    --frozen matches do not. Expressions match anywhere in a parameter's name or
    in one of its aliases. One that matches nothing is an error.

    ```mlir
    // fsdp.options = {frozen = ["^wte"]}
    fsdp.parameter @wte.weight : tensor<256x48xf32> trainable
    // becomes
    fsdp.parameter @wte.weight : tensor<256x48xf32>
    ```
  }];
  let statistics = [Statistic<"frozen", "frozen", "parameters frozen">];
}

def FormUnits : Pass<"form-units", "::mlir::ModuleOp"> {
  let summary = "gives each op and parameter of the model a unit";
  let description = [{
    A unit is what is gathered, freed and reduced together. Where the exporter
    wrote the modules that an op comes from (`nn.scope`, `nn.class`), units are
    modules:

    | option | units |
    |---|---|
    | unit-class = GLOB | modules of such a class, the innermost |
    | unit-scope = REGEX | modules of such a name, the outermost |
    | unit-size = N | what is left to the root, cut after N elements |
    | units = auto, without those | numbered modules that share a class (`h.0`, `h.1`, …), the outermost |
    | units = whole | one |

    Large parameters that would be left to the root (embedding, head) become
    units with their module, but for unit-size and units = whole: what stands at
    both ends of a model would otherwise be gathered, and its gradient kept, at
    once.

    What remains is the unit @root. Ops that read no weight and stand in no
    unit's module (mask building, the loss) join the op before them, so that
    they never begin a segment of their own. A load, with the transposes and
    casts of it, stands in the unit that uses it, once for each unit; the first
    unit that reads a parameter owns it.

    ```mlir
    fsdp.parameter @h.0.w : tensor<8x8xf32> trainable
    func.func @microbatch(%x: tensor<4x8xf32>) {
      %w = fsdp.load @h.0.w : tensor<8x8xf32>
      %y = nn.matmul %x, %w {nn.scope = ["", "h.0"], nn.class = ["GPT", "Block"]} : …
    // becomes
    fsdp.parameter @h.0.w : tensor<8x8xf32> trainable unit @h.0
    fsdp.unit @h.0 {module_class = "Block", scope = "h.0"}
    func.func @microbatch(%x: tensor<4x8xf32>) {
      %w = fsdp.load @h.0.w {fsdp.unit = @h.0} : tensor<8x8xf32>
      %y = nn.matmul %x, %w {fsdp.unit = @h.0, …} : …
    ```
  }];
  let statistics = [Statistic<"units", "units", "units formed">];
  let dependentDialects = ["::fsdpc::fsdp::FSDPDialect"];
}

#endif
