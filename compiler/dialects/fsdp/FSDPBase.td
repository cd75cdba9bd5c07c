// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The fsdp dialect's own definitions: its discardable attributes, the memory that
// symbols stand for (as side-effect resources), tokens, sources and members.
#ifndef FSDPC_FSDP_BASE
#define FSDPC_FSDP_BASE

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "compiler/dialects/fsdp/FSDPInterfaces.td"
include "compiler/dialects/fsdp/FSDPMemory.td"
include "compiler/dialects/nn/NNMemory.td"
include "compiler/dialects/nn/NNTypes.td"

def FSDP_Dialect : Dialect {
  let name = "fsdp";
  let cppNamespace = "::fsdpc::fsdp";
  let summary = "Fully sharded data parallelism as IR";
  let description = [{
    A module holds symbols (parameters, buffers, units, layouts), which are memory and
    never SSA values, and two functions, `@microbatch` and `@update`. The dialect
    refuses discardable attributes of its own prefix that are not in this table, or
    stand on another op, or have another form:

    | attribute | on | meaning |
    |---|---|---|
    | `fsdp.done` | module | the last pass that ran; compilation goes on after it |
    | `fsdp.options` | module | the options that were given, by flag name; an absent one has its default |
    | `fsdp.recognised` | module | number of composites that the import recognised, by kind |
    | `fsdp.f32_islands` | module | ops of the forward that `--param-dtype` leaves in f32: on `data` (inputs, positions, constants) and on `parameters` |
    | `fsdp.communication` | module | what collectives send per step: elements, and bytes by kind of collective |
    | `fsdp.arena` | module | bytes of the arena, their lower bound, and what it holds at the peak |
    | `fsdp.unit` | ops | the unit (symbol) that the op belongs to |
    | `fsdp.backward` | ops | present on ops of the backward |
    | `fsdp.recompute` | ops | present on ops of the forward that the backward computes again for `--memory-limit`; on calls of libraries until the end |
    | `fsdp.recomputed` | units | what `fsdp.recompute` marks in them: `ops` of the `of` that could be, besides cheap ones, and their estimated `us` |
    | `fsdp.keep_f32` | ops, parameters | present on those of modules that `--keep-f32` names; on ops until `mixed-precision` |
    | `fsdp.hook` | ops | number of the `--reduce-hook`, from 0, that the op is part of |
    | `fsdp.input` | arguments | name of the graph's input; `fsdp.bound`: rows of the table that it indexes, `fsdp.ignored`: a value outside them that is legal |
    | `fsdp.flops`, `fsdp.bytes`, `fsdp.cost_us` | ops | estimated operations, bytes moved and microseconds |
    | `fsdp.cost`, `fsdp.exposed` | ops, waits | the former three and the next as texts, in the short form of a dump alone |
    | `fsdp.exposed_us` | waits | microseconds that the wait is expected to stall compute |
    | `fsdp.persist` | module | microseconds that the waits of a microbatch are expected to stall compute, and those if `--persist` kept nothing whole |
    | `fsdp.offloaded` | module | activations that leave the memory: `pieces` and `bytes` of those that could, microseconds of their copies and of the part that is exposed, and the `units` that read them last |
    | `fsdp.predicted` | module | microseconds that a microbatch and an update are expected to take, for several numbers of ranks |
    | `fsdp.schedule_hash` | module | hash of the order of the starts on each channel; all ranks must agree on it |
    | `fsdp.unsummed` | layouts | the gradient is that of one microbatch on one rank (`--max-accumulate=1`, `--max-ranks=1`): what computes it writes it to the layout's own memory, in the compute type, where the norm and the optimizer read it |
    | `fsdp.offsets` | ops | arena offset of each result in bytes, or that in the gradient of a layout that is unsummed, -1 where it shares or has no memory |
  }];
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let extraClassDeclaration = [{
    static constexpr llvm::StringLiteral kDoneAttr = "fsdp.done";
    static constexpr llvm::StringLiteral kUnitAttr = "fsdp.unit";
    static constexpr llvm::StringLiteral kBackwardAttr = "fsdp.backward";
    static constexpr llvm::StringLiteral kKeepF32Attr = "fsdp.keep_f32";
    static constexpr llvm::StringLiteral kInputAttr = "fsdp.input";
    static constexpr llvm::StringLiteral kBoundAttr = "fsdp.bound";
    static constexpr llvm::StringLiteral kIgnoredAttr = "fsdp.ignored";
    static constexpr llvm::StringLiteral kFlopsAttr = "fsdp.flops";
    static constexpr llvm::StringLiteral kBytesAttr = "fsdp.bytes";
    static constexpr llvm::StringLiteral kCostAttr = "fsdp.cost_us";
    static constexpr llvm::StringLiteral kExposedAttr = "fsdp.exposed_us";
    static constexpr llvm::StringLiteral kPredictedAttr = "fsdp.predicted";
    static constexpr llvm::StringLiteral kScheduleHashAttr = "fsdp.schedule_hash";
    static constexpr llvm::StringLiteral kOffsetsAttr = "fsdp.offsets";
    static constexpr llvm::StringLiteral kMicrobatch = "microbatch";
    static constexpr llvm::StringLiteral kUpdate = "update";
  }];
}

class FSDP_Op<string mnemonic, list<Trait> traits = []>
    : Op<FSDP_Dialect, mnemonic, traits>;

def FSDP_Token : TypeDef<FSDP_Dialect, "Token"> {
  let mnemonic = "token";
  let summary = "a collective under way; waited for exactly once";
}

def FSDP_Source : AttrDef<FSDP_Dialect, "Source"> {
  let mnemonic = "source";
  let summary = "where an initial value lies: bytes [offset, offset + length) of a file";
  let description = [{
    `dtype` is the element type in the file and `hash` XXH64 (seed 0) of the bytes. An
    import reads no values and leaves it empty; what links the program fills it in.
    `file` is the path at compile time; the program's `--weights` names another
    folder if the files have moved.
  }];
  let parameters = (ins StringRefParameter<>:$file, "uint64_t":$offset,
                        "uint64_t":$length, StringRefParameter<>:$dtype,
                        StringRefParameter<>:$hash);
  let assemblyFormat = "`<` struct(params) `>`";
}

def FSDP_Member : AttrDef<FSDP_Dialect, "Member"> {
  let mnemonic = "member";
  let summary = "a parameter's place in a layout, [offset, offset + elements), and its row of rate and decay";
  let description = [{
    Offset and size are in elements. `rate` multiplies the learning rate and `decay`
    is the weight decay; both can be edited in a dump.
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$parameter, "int64_t":$offset,
                        "int64_t":$elements, "::mlir::FloatAttr":$rate,
                        "::mlir::FloatAttr":$decay);
  let assemblyFormat = "`<` $parameter `[` $offset `,` $elements `]` `rate` $rate `decay` $decay `>`";
}
def FSDP_Members : TypedArrayAttrBase<FSDP_Member, "members of a layout">;

def FSDP_Compression : AttrDef<FSDP_Dialect, "Compression"> {
  let mnemonic = "compression";
  let summary = "how the reduction of a layout sends less than its gradient";
  let description = [{
    `kind` is the name of a kind in runtime/abi/compressions.h, which says what `amount` counts
    and all else that passes, the memory plan and the runtime ask. A layout prints both as a word
    and a number: `top_k 4`.
  }];
  let parameters = (ins StringRefParameter<>:$kind, "int64_t":$amount);
  let assemblyFormat = "`<` $kind `,` $amount `>`";
}

def FSDP_Optimizer : AttrDef<FSDP_Dialect, "Optimizer"> {
  let mnemonic = "optimizer";
  let summary = "what the optimizer of a layout keeps of an element, and what it takes of whole parameters";
  let description = [{
    `states` names the f32 states of an element, without the average of `--ema`. `sums` is the
    number of sums over each whole parameter that the program takes (`fsdp.member_sums`). A
    `factored` one takes averages of squares along rows and columns (`fsdp.update_factors`), an
    `orthogonal` one updates of whole matrices (`fsdp.orthogonalize`).

    **Constraints**
    - `states` are different names, and `sums` is from 0 to 8.
    - It is not both `factored` and `orthogonal`.
  }];
  let parameters = (ins "::mlir::ArrayAttr":$states, DefaultValuedParameter<"int64_t", "0">:$sums,
                        DefaultValuedParameter<"bool", "false">:$factored,
                        DefaultValuedParameter<"bool", "false">:$orthogonal);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Returns true if the update of an element needs nothing of the others.
    bool isPointwise() const {
      return getSums() == 0 && !getFactored() && !getOrthogonal();
    }
  }];
}

#endif
