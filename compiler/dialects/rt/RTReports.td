// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops that report a run's values: the loss, further outputs, gradients with zeroed
// elements, and NaN where a value is read after its end.
#ifndef FSDPC_RT_REPORTS
#define FSDPC_RT_REPORTS

include "compiler/dialects/rt/RTBase.td"

def RT_PoisonOp : RT_Command<"poison", "compute"> {
  let summary = "Fills memory whose value has ended with NaN";
  let description = [{
    Calls `fsdpc_poison` on stream `compute`. For the debug option `--poison`: every
    bit of the bytes becomes 1, which is NaN in every float type, so that a read of a
    dead value shows in the loss. Parameters that ranks of one process hold side by
    side stay as they are, so such reads show under mpirun.

    **Constraints**
    - `bytes` does not exceed the pointer's bytes.

    Example:
    ```mlir
    %dead = rt.pointer arena + 0 bytes 1536
    rt.poison %dead bytes 1536
    ```
  }];
  let arguments = (ins RT_Written<"static_cast<int64_t>(getBytes())">:$memory, RT_Int64:$bytes);
  let assemblyFormat = "$memory `bytes` $bytes attr-dict";
}

def RT_ReportLossOp : RT_Command<"report_loss", "compute", [MemoryEffects<[MemWrite<FSDP_StepReport>]>]> {
  let summary = "Reports the microbatch's loss";
  let description = [{
    Calls `fsdpc_report_loss` on stream `compute`. Reads `loss`, one f32, and
    `valid`, one f32: the loss's divisor (number or weight of the targets that
    count), 1 if there is none. Where the divisor is 0 the loss counts as 0 whatever
    it holds, and the runtime warns once per run. The program itself ensures that the
    gradient of such a microbatch is zero.

    **Constraints**
    - Each pointer reaches 4 bytes.

    Example:
    ```mlir
    %loss = rt.pointer arena + 0 bytes 4
    %valid = rt.pointer arena + 64 bytes 4
    rt.report_loss %loss valid %valid
    ```
  }];
  let usesRank = 1;
  let arguments = (ins RT_Read<OneF32>:$loss, RT_Read<OneF32, Optional<RT_Pointer>>:$valid);
  let assemblyFormat = "$loss (`valid` $valid^)? attr-dict";
}

def RT_OutputPlan : AttrDef<RT_Dialect, "OutputPlan",
    [DeclareAttrInterfaceMethods<PlanAttrInterface>]> {
  let mnemonic = "output";
  let summary = "name and type of a further output of the model";
  let description = [{
    Says what `rt.report_output` reports: a tensor of the graph by its name. `@microbatch`
    and `@evaluate` report an output with one plan, so that it is one entry of the
    manifest.
  }];
  let parameters = (ins "::mlir::StringAttr":$name, "::mlir::RankedTensorType":$type);
  let assemblyFormat = "`<` $name `,` $type `>`";
}

def RT_ReportOutputOp : RT_Command<"report_output", "compute", [MemoryEffects<[MemWrite<FSDP_StepReport>]>]> {
  let summary = "Reports a further output of the model";
  let description = [{
    Calls `fsdpc_report_output` on stream `compute`. Reads `value`, a dense tensor of the
    plan's type. A scalar is kept per microbatch of the step, with the loss; of any other
    tensor the last report is kept.

    **Constraints**
    - `value` reaches the bytes of the plan's type; elements below a byte take one.

    Example:
    ```mlir
    %logits = rt.pointer arena + 0 bytes 160
    rt.report_output <"logits", tensor<4x10xf32>> %logits
    ```
  }];
  let usesRank = 1;
  let arguments = (ins RT_PlanIndex<RT_OutputPlan>:$plan,
                       RT_Read<"nn::tensorBytes(getPlan().getType())">:$value);
  let assemblyFormat = "$plan $value attr-dict";
}

def RT_ReportZeroedOp : RT_Command<"report_zeroed", "compute", [MemoryEffects<[MemWrite<FSDP_StepReport>]>]> {
  let summary = "Reports that a gradient had elements that were not finite";
  let description = [{
    Calls `fsdpc_report_zeroed` on stream `compute`. Adds `zeroed`, one f32, to the number
    of gradients of the step in which elements were replaced by 0. Only the host counts
    them.

    **Constraints**
    - `zeroed` reaches 4 bytes.

    Example:
    ```mlir
    %zeroed = rt.pointer arena + 0 bytes 4
    rt.report_zeroed %zeroed
    ```
  }];
  let usesRank = 1;
  let arguments = (ins RT_Read<OneF32>:$zeroed);
  let assemblyFormat = "$zeroed attr-dict";
}

#endif
