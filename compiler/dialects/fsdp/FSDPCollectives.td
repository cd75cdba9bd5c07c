// Sharded parameters, collectives and their schedule, the update.
#ifndef FSDPC_FSDP_COLLECTIVES
#define FSDPC_FSDP_COLLECTIVES

include "compiler/dialects/fsdp/FSDPSymbols.td"

// ---- after shard-parameters ----

def FSDP_FlatOp : FSDP_Op<"flat", [Pure, UsesSymbols]> {
  let summary = "a layout's whole parameters, wherever they are (until `materialize-collectives`)";
  let arguments = (ins FlatSymbolRefAttr:$layout);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$layout attr-dict `:` type($result)";
}

def FSDP_ViewOp : FSDP_Op<"view", [Pure, UsesSymbols]> {
  let summary = "a member of a flat buffer, without a copy";
  let arguments = (ins NN_Tensor:$flat, FlatSymbolRefAttr:$member, I64Attr:$offset);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$flat `[` $member `at` $offset `]` attr-dict `:` type($flat) `->` type($result)";
  let hasVerifier = 1; // within the flat buffer, of its element type
}

def FSDP_PackOp : FSDP_Op<"pack", [Pure, UsesSymbols]> {
  let summary = "a layout's flat gradient from its members' gradients, without copies";
  let description = [{
    One operand a member, in the layout's order. The planner places each operand
    inside the result, so that the ops that compute them write there; an operand
    that cannot (another use needs it elsewhere) is copied by a kernel before.
  }];
  let arguments = (ins FlatSymbolRefAttr:$layout, Variadic<NN_Tensor>:$values);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$layout `(` $values `)` attr-dict `:` `(` type($values) `)` `->` type($result)";
}

def FSDP_ReduceOp : FSDP_Op<"reduce", [MemoryEffects<[MemWrite<FSDP_GradientMemory>]>, UsesSymbols]> {
  let summary = "adds a microbatch's flat gradient to the accumulator (until `materialize-collectives`)";
  let arguments = (ins FlatSymbolRefAttr:$layout, NN_Tensor:$gradient);
  let assemblyFormat = "$layout `,` $gradient attr-dict `:` type($gradient)";
}

// ---- after materialize-collectives ----

def FSDP_EnterOp : FSDP_Op<"enter", [MemoryEffects<[MemWrite]>, UsesSymbols]> {
  let summary = "a segment of a unit begins";
  let arguments = (ins FlatSymbolRefAttr:$unit, UnitAttr:$backward);
  let assemblyFormat = "$unit (`backward` $backward^)? attr-dict";
}

def FSDP_ExitOp : FSDP_Op<"exit", [MemoryEffects<[MemWrite]>, UsesSymbols]> {
  let summary = "a segment of a unit ends";
  let arguments = (ins FlatSymbolRefAttr:$unit, UnitAttr:$backward);
  let assemblyFormat = "$unit (`backward` $backward^)? attr-dict";
}

def FSDP_WholeOp : FSDP_Op<"whole", [MemoryEffects<[MemRead<FSDP_ParameterMemory>]>, UsesSymbols]> {
  let summary = "a layout's parameters, kept whole on every rank";
  let arguments = (ins FlatSymbolRefAttr:$layout);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$layout attr-dict `:` type($result)";
}

def FSDP_AllGatherOp : FSDP_Op<"all_gather",
    [MemoryEffects<[MemRead<FSDP_ParameterMemory>, MemAlloc]>, UsesSymbols]> {
  let summary = "gathers layouts' shards of all ranks, one result a layout";
  let description = [{
    Not Pure: CSE must not merge the backward's gather with the forward's. The
    result lives until `fsdp.free`.
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts);
  let results = (outs Variadic<NN_Tensor>:$results);
  let assemblyFormat = "$layouts attr-dict `:` type($results)";
}

def FSDP_FreeOp : FSDP_Op<"free", [MemoryEffects<[MemFree]>]> {
  let summary = "the gathered buffer ends; once a gather, after its last use";
  let arguments = (ins NN_Tensor:$flat);
  let assemblyFormat = "$flat attr-dict `:` type($flat)";
  let hasVerifier = 1; // a gathered buffer
}

def FSDP_ReduceScatterOp : FSDP_Op<"reduce_scatter",
    [MemoryEffects<[MemWrite<FSDP_GradientMemory>]>, UsesSymbols]> {
  let summary = "sums gradients over ranks, in rank order, into the accumulators' shards";
  let description = [{ Overwrites in the first microbatch of a step, adds in later ones. }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts, Variadic<NN_Tensor>:$gradients);
  let assemblyFormat = "$layouts `,` $gradients attr-dict `:` type($gradients)";
}

def FSDP_AccumulateOp : FSDP_Op<"accumulate",
    [MemoryEffects<[MemWrite<FSDP_GradientMemory>]>, UsesSymbols]> {
  let summary = "adds to the whole accumulator, without communication (--reduce=step)";
  let arguments = (ins FlatSymbolRefAttr:$layout, NN_Tensor:$gradient);
  let assemblyFormat = "$layout `,` $gradient attr-dict `:` type($gradient)";
}

// ---- after schedule-prefetch ----

def FSDP_AllGatherStartOp : FSDP_Op<"all_gather_start",
    [MemoryEffects<[MemRead<FSDP_ParameterMemory>, MemAlloc]>, UsesSymbols]> {
  let summary = "begins all_gather; its destination is live from here";
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts);
  let results = (outs FSDP_Token:$token);
  let assemblyFormat = "$layouts attr-dict";
}

def FSDP_AllGatherWaitOp : FSDP_Op<"all_gather_wait",
    [MemoryEffects<[MemRead<FSDP_ParameterMemory>, MemAlloc]>, UsesSymbols]> {
  let summary = "the gathered parameters, usable from here";
  let arguments = (ins FSDP_Token:$token);
  let results = (outs Variadic<NN_Tensor>:$results);
  let assemblyFormat = "$token attr-dict `:` type($results)";
  let hasVerifier = 1; // the token is all_gather_start's
}

def FSDP_ReduceScatterStartOp : FSDP_Op<"reduce_scatter_start",
    [MemoryEffects<[MemWrite<FSDP_GradientMemory>]>, UsesSymbols]> {
  let summary = "begins reduce_scatter; the gradients stay live until the wait";
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts, Variadic<NN_Tensor>:$gradients);
  let results = (outs FSDP_Token:$token);
  let assemblyFormat = "$layouts `,` $gradients attr-dict `:` type($gradients)";
}

def FSDP_ReduceScatterWaitOp : FSDP_Op<"reduce_scatter_wait",
    [MemoryEffects<[MemWrite<FSDP_GradientMemory>]>]> {
  let summary = "the shards are summed, the gradients' memory is reusable, on all ranks";
  let arguments = (ins FSDP_Token:$token);
  let assemblyFormat = "$token attr-dict";
  let hasVerifier = 1; // the token is reduce_scatter_start's
}

// ---- @update ----

def FSDP_SumSquaresOp : FSDP_Op<"sum_squares",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>]>, UsesSymbols]> {
  let summary = "sum of squares of this rank's part of each layout's gradient, in f64";
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts);
  let results = (outs StaticShapeTensorOf<[F64]>:$result);
  let assemblyFormat = "$layouts attr-dict `:` type($result)";
}

def FSDP_AllReduceOp : FSDP_Op<"all_reduce", [MemoryEffects<[MemRead<FSDP_GradientMemory>]>,
    AllTypesMatch<["input", "result"]>]> {
  let summary = "sums over ranks in rank order; the result takes the operand's memory";
  let arguments = (ins StaticShapeTensorOf<[F64]>:$input);
  let results = (outs StaticShapeTensorOf<[F64]>:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

def FSDP_ClipOp : FSDP_Op<"clip", [MemoryEffects<[MemRead<FSDP_GradientMemory>]>, UsesSymbols]> {
  let summary = "the gradients' factor: min(1, max_norm / (norm + 1e-6)) / V";
  let description = [{
    norm = sqrt(Σ sums) / V, reported; V, the microbatches of a step, is known at
    run time. `max_norm` 0 does not clip.
  }];
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts,
                       StaticShapeTensorOf<[F64]>:$sums, F64Attr:$max_norm);
  let results = (outs StaticShapeTensorOf<[F32]>:$scale);
  let assemblyFormat = "$layouts `,` $sums attr-dict `:` type($sums) `->` type($scale)";
}

def FSDP_GatherGradientsOp : FSDP_Op<"gather_gradients",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>, UsesSymbols]> {
  let summary = "all-gathers the accumulated gradients in place (ddp)";
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts);
  let assemblyFormat = "$layouts attr-dict";
}

def FSDP_ReduceGradientsOp : FSDP_Op<"reduce_gradients",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_GradientMemory>]>, UsesSymbols]> {
  let summary = "reduces the locally accumulated gradients once a step (--reduce=step)";
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts);
  let assemblyFormat = "$layouts attr-dict";
}

def FSDP_OptimizerOp : FSDP_Op<"optimizer",
    [MemoryEffects<[MemRead<FSDP_GradientMemory>, MemWrite<FSDP_ParameterMemory>]>,
     UsesSymbols, SingleBlockImplicitTerminator<"YieldOp">]> {
  let summary = "applies a scalar program to each element of this rank's part of a layout";
  let description = [{
    The region's arguments are the parameter (f32), the gradient already
    multiplied by `scale` (f32), the states (f32 each), then lr · rate, step
    (counted from 1) and decay as f64. It yields the parameter and the states.
    The compute copy, where there is one, is cast from the new parameter.

    ```mlir
    fsdp.optimizer @h.0.flat, %scale : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %m: f32, %v: f32, %lr: f64, %step: f64, %decay: f64):
      …
      fsdp.yield %p1, %m1, %v1 : f32, f32, f32
    }
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$layout, StaticShapeTensorOf<[F32]>:$scale);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$layout `,` $scale `:` type($scale) attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def FSDP_YieldOp : FSDP_Op<"yield", [Pure, Terminator, ParentOneOf<["OptimizerOp"]>]> {
  let summary = "the new parameter and states";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
  let builders = [OpBuilder<(ins), [{ build($_builder, $_state, ::mlir::ValueRange()); }]>];
}

def FSDP_GatherParametersOp : FSDP_Op<"gather_parameters",
    [MemoryEffects<[MemRead<FSDP_ParameterMemory>, MemWrite<FSDP_ParameterMemory>]>, UsesSymbols]> {
  let summary = "all-gathers updated parameters in place (zero1, zero2)";
  let arguments = (ins FlatSymbolRefArrayAttr:$layouts);
  let assemblyFormat = "$layouts attr-dict";
}

#endif
