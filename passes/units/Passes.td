// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes of the phase `units`: after it, every op belongs to a unit, every
// parameter has one owner, and it is decided which parameters train. verify-units
// checks that.
#ifndef FSDPC_PASSES_UNITS
#define FSDPC_PASSES_UNITS

include "mlir/Pass/PassBase.td"

def SelectTrainable : Pass<"select-trainable", "::mlir::ModuleOp"> {
  let summary = "Freezes parameters by --frozen and --trainable";
  let description = [{
    With --trainable only the parameters that it matches stay trainable; with --frozen
    those that it matches do not. Expressions match anywhere in a parameter's name or in
    one of its aliases. An expression that matches nothing is an error.

    Before, with --frozen=^wte:
    ```mlir
    fsdp.parameter @wte.weight : tensor<256x48xf32> trainable
    ```
    After:
    ```mlir
    fsdp.parameter @wte.weight : tensor<256x48xf32>
    ```
  }];
  let statistics = [Statistic<"frozen", "frozen", "parameters frozen">];
}

def FormUnits : Pass<"form-units", "::mlir::ModuleOp"> {
  let summary = "Gives each op and parameter of the model a unit";
  let description = [{
    A unit is what is gathered, freed and reduced together. Where the exporter wrote the
    modules that an op comes from (`nn.modules`), units are modules:

    | option | units |
    |---|---|
    | unit-class = GLOB | the innermost modules of a class that matches |
    | unit-scope = REGEX | the outermost modules whose path matches |
    | unit-size = N | what remains for the root, cut after N elements |
    | units = auto, without those | the outermost numbered modules that share a class (`h.0`, `h.1`, …) |
    | units = whole | one |

    A large parameter outside of these modules (embedding, head) becomes a unit together
    with its own module, except with unit-size and with units = whole. In the root it
    would be gathered, and its gradient kept, from one end of the model to the other.

    With `keep-f32 = GLOB` the ops of the modules whose class or path matches, and the
    parameters that they read, get `fsdp.keep_f32`, which mixed-precision obeys.

    All other ops form the unit @root. Ops that read no weight and are in no unit's module
    (mask building, the loss) join the op before them, so that they never begin a
    segment of their own. A load, with its transposes and casts, belongs to the unit that
    uses it and is cloned once per unit; the first unit that reads a parameter owns it.

    Before:
    ```mlir
    fsdp.parameter @h.0.w : tensor<8x8xf32> trainable
    func.func @microbatch(%x: tensor<4x8xf32>) {
      %w = fsdp.load @h.0.w : tensor<8x8xf32>
      %y = nn.matmul %x, %w {nn.modules = #nn.modules<"": "GPT", "h.0": "Block">} : …
    ```
    After:
    ```mlir
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

def VerifyUnits : Pass<"verify-units", "::mlir::ModuleOp"> {
  let summary = "Checks what holds after the phase `units`";
  let description = [{
    Refuses a module that breaks one of these rules, and changes nothing. Units can be
    edited in a dump as long as the rules hold.

    | rule | broken where |
    |---|---|
    | `unit` | an op of @microbatch has no `fsdp.unit`, or one that does not exist |
    | `forward` | an op is marked `fsdp.backward`, or there is a layout, or an op touches the memory of layouts, except that of gradients with `--gradient`: the phases after this one write them |
    | `weight-of-unit` | an op reads a weight, or a rearrangement of one (transpose, reshape, slice, cast, broadcast), that another unit loads |
    | `owner` | a parameter has no unit, or belongs to another one than the unit that reads it first |
    | `trainable` | no parameter is trainable |

    An op that reads no weight may be in any unit.

    Refused, since the load and its user are in two units:
    ```mlir
    %w = fsdp.load @h.0.w {fsdp.unit = @h.0} : tensor<8x8xf32>
    %y = nn.matmul %x, %w {fsdp.unit = @h.1} : …
    ```
  }];
}

#endif
