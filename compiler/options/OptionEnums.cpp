// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The names of enums' values as options spell them, in one list per enum, from
// which parsing, printing and the help come. Another tool's name is taken for
// the one that it stands for (foreign_names.h).
#include "compiler/options/OptionTypes.h"

#include "compiler/options/Optimizers.h"
#include "compiler/options/StrategyTable.h"
#include "runtime/support/foreign_names.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

using namespace mlir;
using fsdpc::ElementType;
using fsdpc::schedule::Prefetch;

namespace fsdpc::fsdp {

// A table for each enum. The order is that of the help.
template <> ArrayRef<EnumName<TrainingMode>> enumNames() {
  static constexpr EnumName<TrainingMode> names[] = {
      {"graph", TrainingMode::Graph},
      {"on", TrainingMode::On},
      {"off", TrainingMode::Off}};
  return names;
}

template <> ArrayRef<EnumName<BufferMode>> enumNames() {
  static constexpr EnumName<BufferMode> names[] = {
      {"sequential", BufferMode::Sequential},
      {"local", BufferMode::Local},
      {"broadcast", BufferMode::Broadcast},
      {"average", BufferMode::Average}};
  return names;
}

template <> ArrayRef<EnumName<LossReduction>> enumNames() {
  static constexpr EnumName<LossReduction> names[] = {
      {"none", LossReduction::None},
      {"mean", LossReduction::Mean},
      {"sum", LossReduction::Sum}};
  return names;
}

template <> ArrayRef<EnumName<LossMean>> enumNames() {
  static constexpr EnumName<LossMean> names[] = {
      {"step", LossMean::Step}, {"microbatch", LossMean::Microbatch}};
  return names;
}

// As the optimizers below, strategies lie in a table of their own. The aliases
// come last.
template <> ArrayRef<EnumName<Strategy>> enumNames() {
  static const SmallVector<EnumName<Strategy>> names = [] {
    SmallVector<EnumName<Strategy>> names;
    for (const StrategyInfo &info : allStrategies())
      names.push_back({info.name, &info});
    for (const StrategyInfo &info : allStrategies())
      if (!info.alias.empty())
        names.push_back({info.alias, &info});
    return names;
  }();
  return names;
}

template <> ArrayRef<EnumName<UnitRule>> enumNames() {
  static constexpr EnumName<UnitRule> names[] = {{"auto", UnitRule::Auto},
                                                 {"whole", UnitRule::Whole}};
  return names;
}

template <> ArrayRef<EnumName<LayoutKind>> enumNames() {
  static constexpr EnumName<LayoutKind> names[] = {
      {"flat", LayoutKind::Flat}, {"parameter", LayoutKind::Parameter}};
  return names;
}

template <> ArrayRef<EnumName<ReductionTime>> enumNames() {
  static constexpr EnumName<ReductionTime> names[] = {
      {"microbatch", ReductionTime::Microbatch}, {"step", ReductionTime::Step}};
  return names;
}

template <> ArrayRef<EnumName<Master>> enumNames() {
  static constexpr EnumName<Master> names[] = {{"f32", Master::F32},
                                               {"none", Master::None}};
  return names;
}

template <> ArrayRef<EnumName<ElementType>> enumNames() {
  static constexpr EnumName<ElementType> names[] = {{"f32", ElementType::f32},
                                                    {"bf16", ElementType::bf16},
                                                    {"f16", ElementType::f16}};
  return names;
}

template <> ArrayRef<EnumName<BlockType>> enumNames() {
  static constexpr EnumName<BlockType> names[] = {
      {"none", BlockType::None},
      {"i8", BlockType::I8},
      {"f8e4m3", BlockType::F8E4M3}};
  return names;
}

template <> ArrayRef<EnumName<ReduceType>> enumNames() {
  static constexpr EnumName<ReduceType> names[] = {
      {"f32", ReduceType::F32},       {"bf16", ReduceType::BF16},
      {"f16", ReduceType::F16},       {"i8", ReduceType::I8},
      {"f8e4m3", ReduceType::F8E4M3}, {"i4", ReduceType::I4}};
  return names;
}

// The optimizers' names lie in their own table (Optimizers.cpp), so that a new
// one is entered once.
template <> ArrayRef<EnumName<const OptimizerInfo *>> enumNames() {
  static const SmallVector<EnumName<const OptimizerInfo *>> names =
      llvm::map_to_vector(allOptimizers(), [](const OptimizerInfo &info) {
        return EnumName<const OptimizerInfo *>{info.name, &info};
      });
  return names;
}

template <> ArrayRef<EnumName<LrAdjustment>> enumNames() {
  static constexpr EnumName<LrAdjustment> names[] = {
      {"original", LrAdjustment::Original},
      {"match_rms_adamw", LrAdjustment::MatchRmsAdamW}};
  return names;
}

template <> ArrayRef<EnumName<ProductType>> enumNames() {
  static constexpr EnumName<ProductType> names[] = {
      {"f32", ProductType::F32}, {"bf16", ProductType::BF16}};
  return names;
}

template <> ArrayRef<EnumName<Prefetch>> enumNames() {
  static constexpr EnumName<Prefetch> names[] = {{"none", Prefetch::None},
                                                 {"post", Prefetch::Post},
                                                 {"pre", Prefetch::Pre},
                                                 {"auto", Prefetch::Auto}};
  return names;
}

template <> ArrayRef<EnumName<RecomputeLevel>> enumNames() {
  static constexpr EnumName<RecomputeLevel> names[] = {
      {"none", RecomputeLevel::None},
      {"cheap", RecomputeLevel::Cheap},
      {"units", RecomputeLevel::Units},
      {"auto", RecomputeLevel::Auto}};
  return names;
}

// `cuda-emulation` is a target and not a flag of `cuda`, because its kernels
// are compiled for the host.
template <> ArrayRef<EnumName<Target>> enumNames() {
  static constexpr EnumName<Target> names[] = {
      {"host", Target::Host},
      {"cuda", Target::Cuda},
      {"cuda-emulation", Target::CudaEmulation}};
  return names;
}

template <> ArrayRef<EnumName<Gpu>> enumNames() {
  static constexpr EnumName<Gpu> names[] = {
      {"sm_80", Gpu::SM80}, {"sm_86", Gpu::SM86},   {"sm_89", Gpu::SM89},
      {"sm_90", Gpu::SM90}, {"sm_100", Gpu::SM100}, {"sm_120", Gpu::SM120}};
  return names;
}

template <> ArrayRef<EnumName<AttentionKernel>> enumNames() {
  static constexpr EnumName<AttentionKernel> names[] = {
      {"auto", AttentionKernel::Auto},
      {"cudnn", AttentionKernel::Cudnn},
      {"products", AttentionKernel::Products}};
  return names;
}

template <> ArrayRef<EnumName<Math>> enumNames() {
  static constexpr EnumName<Math> names[] = {
      {"auto", Math::Auto}, {"exact", Math::Exact}, {"fast", Math::Fast}};
  return names;
}

template <> ArrayRef<EnumName<Cpu>> enumNames() {
  static constexpr EnumName<Cpu> names[] = {{"native", Cpu::Native},
                                            {"x86-64-v3", Cpu::X86_64_V3},
                                            {"x86-64-v4", Cpu::X86_64_V4}};
  return names;
}

FloatType floatType(ElementType type, MLIRContext *context) {
  switch (type) {
  case ElementType::f32:
    return Float32Type::get(context);
  case ElementType::bf16:
    return BFloat16Type::get(context);
  case ElementType::f16:
    return Float16Type::get(context);
  case ElementType::u8: // no option names it
    break;
  }
  llvm_unreachable("not a type to compute in");
}

// The first name of a value counts, so aliases are read and never written.
template <typename Enum> StringRef nameOf(Enum value) {
  for (const EnumName<Enum> &entry : enumNames<Enum>())
    if (entry.value == value)
      return entry.name;
  llvm_unreachable("every value has a name");
}

template <typename Enum> std::string joinNames() {
  std::string text;
  for (const EnumName<Enum> &entry : enumNames<Enum>())
    text += (text.empty() ? "" : "|") + entry.name.str();
  return text;
}

// Accepts a name also as another tool writes it, such as
// "ShardingStrategy.FULL_SHARD" or "torch.bfloat16". The fault lists all names,
// and which one may be meant.
template <typename Enum> std::string parseName(StringRef text, Enum &value) {
  std::string native = nativeValue(text);
  SmallVector<StringRef> names;
  for (const EnumName<Enum> &entry : enumNames<Enum>()) {
    if (entry.name == text || entry.name == native) {
      value = entry.value;
      return "";
    }
    names.push_back(entry.name);
  }
  return "is none of " + joinNames<Enum>() + meant(text, names);
}

// Instantiates the templates for each enum, since their bodies are here and not
// in the header.
#define FSDPC_OPTION_ENUM(Enum)                                                \
  template StringRef nameOf(Enum);                                             \
  template std::string joinNames<Enum>();                                      \
  template std::string parseName(StringRef, Enum &);
FSDPC_OPTION_ENUM(TrainingMode)
FSDPC_OPTION_ENUM(BufferMode)
FSDPC_OPTION_ENUM(LossReduction)
FSDPC_OPTION_ENUM(LossMean)
FSDPC_OPTION_ENUM(Strategy)
FSDPC_OPTION_ENUM(UnitRule)
FSDPC_OPTION_ENUM(LayoutKind)
FSDPC_OPTION_ENUM(ReductionTime)
FSDPC_OPTION_ENUM(Master)
FSDPC_OPTION_ENUM(ElementType)
FSDPC_OPTION_ENUM(BlockType)
FSDPC_OPTION_ENUM(ReduceType)
FSDPC_OPTION_ENUM(const OptimizerInfo *)
FSDPC_OPTION_ENUM(LrAdjustment)
FSDPC_OPTION_ENUM(ProductType)
FSDPC_OPTION_ENUM(Prefetch)
FSDPC_OPTION_ENUM(RecomputeLevel)
FSDPC_OPTION_ENUM(Target)
FSDPC_OPTION_ENUM(Gpu)
FSDPC_OPTION_ENUM(AttentionKernel)
FSDPC_OPTION_ENUM(Math)
FSDPC_OPTION_ENUM(Cpu)
#undef FSDPC_OPTION_ENUM

} // namespace fsdpc::fsdp
