// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counts the bytes that a program's collectives send, by walking its functions.
// Each op counts once, so a parameter that is gathered for the forward and
// again for the backward counts twice.
#include "compiler/analysis/CommunicationVolume.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/options/Options.h"
#include "runtime/abi/compressions.h"
#include "runtime/support/concat.h"
#include "llvm/ADT/StringExtras.h"

#include <map>
#include <set>
#include <tuple>

using namespace mlir;

namespace fsdpc::analysis {
namespace {

// The elements of matrices that go to owners and back.
constexpr llvm::StringLiteral kMatrixSymbol = "M";

// Names the elements that terms are about where layouts differ in strategy,
// type or compression. A program of one strategy and type needs no names: then
// P and F say all.
class Parts {
public:
  Parts(ModuleOp module, const SymbolTable &symbols)
      : symbols(symbols), options(fsdp::CompileOptions::of(module)),
        strategies(fsdp::strategiesOf(module)) {}

  // The symbol of a layout's elements.
  std::string symbolOf(fsdp::LayoutOp layout) const {
    return ((layout.getTrainable() ? "P[" : "F[") + strategyOf(layout) +
            (fsdp::keepsF32(layout, symbols) ? " f32" : "") +
            (fsdp::compressionOf(layout) ? " compressed]" : "]"))
        .str();
  }

  // Counts the elements of all parts that a module has, and gives each term the
  // sum of the parts that its layouts belong to.
  void describe(ModuleOp module, CommunicationVolume &volume) const {
    auto layouts = module.getOps<fsdp::LayoutOp>();
    // Some kinds leave layouts alone that they would not make smaller.
    auto compresses = [](fsdp::LayoutOp layout) {
      return layout.getTrainable() && fsdp::compressionOf(layout);
    };
    auto sendsAll = [](fsdp::LayoutOp layout) {
      return layout.getTrainable() && !fsdp::compressionOf(layout);
    };
    bool mixed =
        llvm::any_of(
            layouts,
            [&](auto layout) { return fsdp::keepsF32(layout, symbols); }) ||
        (llvm::any_of(layouts, compresses) && llvm::any_of(layouts, sendsAll));
    if (strategies.size() < 2 && !mixed)
      return;
    std::map<std::string, uint64_t> counts;
    for (auto layout : module.getOps<fsdp::LayoutOp>())
      for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>())
        counts[symbolOf(layout)] += member.getElements();
    volume.parts.assign(counts.begin(), counts.end());
    // Frozen parts sort before trainable ones.
    auto firstTrainable = counts.lower_bound("P");
    size_t trainable = std::distance(firstTrainable, counts.end());
    for (CommunicationVolume::Term &term : volume.terms) {
      if (!term.elements.empty())
        continue;
      const std::set<std::string> &found =
          terms.at({term.what, term.level, term.type});
      bool all = found.size() == trainable && *found.begin() >= "P";
      term.elements = all ? "P" : llvm::join(found, "+");
      if (!all && found.size() > 1)
        term.elements = "(" + term.elements + ")";
    }
  }

  // Notes that a term is about the layout; `describe` comes after all of them.
  void add(StringRef what, Level level, StringRef type, fsdp::LayoutOp layout) {
    terms[{what.str(), level, type.str()}].insert(symbolOf(layout));
  }

  StringRef strategyOf(fsdp::LayoutOp layout) const {
    return nameOf(fsdp::strategyOf(layout, options));
  }
  fsdp::CutOver cutOver(fsdp::LayoutOp layout) const {
    return fsdp::cutOver(layout, options);
  }

private:
  const SymbolTable &symbols;
  fsdp::CompileOptions options;
  SmallVector<fsdp::Strategy> strategies;
  // The symbols of each term.
  std::map<std::tuple<std::string, Level, std::string>, std::set<std::string>>
      terms;
};

// A layout's flat buffer as it travels, without the shards' padding.
struct Sent {
  StringRef type;
  uint64_t bytes;
  StringRef symbol = {}; // of the elements, if they are not the layout's
};

// Tells in which type a program's collectives send a layout, and how many bytes
// that takes.
class Wire {
public:
  Wire(fsdp::CompileOptions options, const SymbolTable &symbols)
      : options(std::move(options)), symbols(symbols) {}

  // A layout as an op sends it.
  Sent sent(fsdp::LayoutOp layout, fsdp::SentForm form) const {
    switch (form) {
    case fsdp::SentForm::Computed:
      return computed(layout);
    case fsdp::SentForm::Gathered:
      return gathered(layout);
    case fsdp::SentForm::HandedOver:
      return handedOver(layout);
    case fsdp::SentForm::Reduced:
      return reduced(layout);
    case fsdp::SentForm::Wide:
      return wide(layout);
    case fsdp::SentForm::ToOwners:
    case fsdp::SentForm::FromOwners:
      return {"f32", uint64_t(fsdp::memberElementsOf(layout)) * sizeof(float),
              kMatrixSymbol};
    }
    llvm_unreachable("all forms are listed");
  }
  Sent computed(fsdp::LayoutOp layout) const {
    return inType(layout, computeType(layout));
  }
  Sent gathered(fsdp::LayoutOp layout) const {
    BlockType wire = fsdp::wireOf(layout);
    return wire == BlockType::None
               ? computed(layout)
               : Sent{fsdp::nameOf(wire),
                      uint64_t(fsdp::gatheredBytesOf(layout))};
  }
  Sent wide(fsdp::LayoutOp layout) const {
    return inType(layout, ElementType::f32);
  }
  Sent reduced(fsdp::LayoutOp layout) const {
    return {fsdp::nameOf(options.reduceType),
            uint64_t(options.reducedBytes(layout.getElements()))};
  }
  // What a compressed reduction sends in place of the gradient.
  Sent compressed(fsdp::LayoutOp layout) const {
    Compression compression = fsdp::compressionOf(layout);
    const CompressionInfo &info = infoOf(compression);
    return {info.traffic.type,
            uint64_t(info.sentBytes(compression.amount,
                                    fsdp::shapesOf(layout, symbols))),
            info.traffic.symbol};
  }
  // On the host a 16-bit gradient travels as it is, and is widened where it is
  // summed (handedOver, runtime/numeric/reduce.h), unless it travels in blocks.
  Sent handedOver(fsdp::LayoutOp layout) const {
    bool asItIs = !options.isCuda() && !options.reducesBlocks() &&
                  computeType(layout) != ElementType::f32;
    return asItIs ? computed(layout) : reduced(layout);
  }

private:
  static Sent inType(fsdp::LayoutOp layout, ElementType type) {
    return {fsdp::nameOf(type),
            uint64_t(layout.getElements() * elementBytes(type))};
  }
  ElementType computeType(fsdp::LayoutOp layout) const {
    return fsdp::keepsF32(layout, symbols) ? ElementType::f32
                                           : options.paramType.type;
  }

  fsdp::CompileOptions options;
  const SymbolTable &symbols;
};

// Adds the statistics that ranks tell each other in a microbatch, B, if any.
// With `--buffers=local` each rank keeps its own.
void addStatistics(ModuleOp module, CommunicationVolume &volume) {
  auto microbatch =
      module.lookupSymbol<func::FuncOp>(fsdp::FSDPDialect::kMicrobatch);
  uint64_t elements = 0;
  if (microbatch)
    for (auto update : microbatch.getOps<fsdp::UpdateStatisticsOp>())
      if (update.getMode() != "local")
        elements += cast<RankedTensorType>(update.getStatistic().getType())
                        .getNumElements();
  if (elements == 0)
    return;
  volume.terms.push_back({"update_statistics", Level::Each,
                          /*eachMicrobatch=*/true, elements * sizeof(float),
                          "f32", "B"});
  volume.parts.emplace_back("B", elements);
}

// Adds the numbers that a function sums over ranks, if there are any: of
// @microbatch S, and of @update U, which are those of norms and of optimizers.
void addSums(ModuleOp module, StringRef function, StringRef symbol,
             bool eachMicrobatch, CommunicationVolume &volume) {
  auto found = module.lookupSymbol<func::FuncOp>(function);
  if (!found)
    return;
  uint64_t elements = 0;
  for (auto reduce : found.getOps<fsdp::AllReduceOp>())
    elements += reduce.getType().getNumElements();
  if (elements == 0)
    return;
  volume.terms.push_back({"all_reduce", Level::Each, eachMicrobatch,
                          elements * sizeof(double), "f64", symbol.str()});
  volume.parts.emplace_back(symbol, elements);
}

// Names the matrices that terms are about: M, or where layouts differ in
// strategy, which ways back depend on, M[zero3] and the like.
class Matrices {
public:
  // Notes that a term is about those of a layout; `describe` comes after all.
  void add(fsdp::Sending sending, Level level, StringRef strategy,
           uint64_t elements) {
    terms[{sending.name.str(), level}].insert(strategy.str());
    if (sending.form == fsdp::SentForm::ToOwners)
      counts[strategy.str()] += elements;
  }

  void describe(CommunicationVolume &volume) const {
    for (const auto &[strategy, elements] : counts)
      volume.parts.emplace_back(symbolOf(strategy), elements);
    for (CommunicationVolume::Term &term : volume.terms) {
      if (term.elements != kMatrixSymbol)
        continue;
      SmallVector<std::string> symbols;
      for (const std::string &strategy : terms.at({term.what, term.level}))
        symbols.push_back(symbolOf(strategy));
      term.elements = llvm::join(symbols, "+");
      if (symbols.size() > 1)
        term.elements = "(" + term.elements + ")";
    }
  }

private:
  std::string symbolOf(const std::string &strategy) const {
    return counts.size() < 2 ? kMatrixSymbol.str()
                             : (kMatrixSymbol + "[" + strategy + "]").str();
  }

  // The elements of each strategy that has matrices, and the strategies of each
  // term.
  std::map<std::string, uint64_t> counts;
  std::map<std::pair<std::string, Level>, std::set<std::string>> terms;
};

// Says how many elements the symbol of each kind of compression stands for.
// Each layout is reduced once.
void addCompressed(ModuleOp module, const Wire &wire,
                   CommunicationVolume &volume) {
  for (const CompressionInfo *info : compressions()) {
    uint64_t elements = 0;
    for (auto layout : module.getOps<fsdp::LayoutOp>())
      if (fsdp::compressionOf(layout).kind == info->name)
        elements += wire.compressed(layout).bytes /
                    uint64_t(info->traffic.elementBytes);
    if (elements != 0)
      volume.parts.emplace_back(info->traffic.symbol, elements);
  }
}

// One scan over the collectives of a step.
class Counter {
public:
  explicit Counter(ModuleOp module)
      : symbols(module), parts(module, symbols),
        wire(fsdp::CompileOptions::of(module), symbols) {
    for (auto layout : module.getOps<fsdp::LayoutOp>())
      for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>())
        (layout.getTrainable() ? volume.trainable : volume.frozen) +=
            member.getElements();
  }

  // Counts what the op sends.
  void visit(fsdp::SendsOpInterface op) {
    fsdp::Sending sending = op.getSending();
    for (FlatSymbolRefAttr name : op.getSentLayouts())
      add(sending, symbols.lookup<fsdp::LayoutOp>(name.getAttr()));
  }

  CommunicationVolume finish(ModuleOp module) {
    parts.describe(module, volume);
    addCompressed(module, wire, volume);
    matrices.describe(volume);
    addStatistics(module, volume);
    addSums(module, fsdp::FSDPDialect::kMicrobatch, "S", true, volume);
    addSums(module, fsdp::FSDPDialect::kUpdate, "U", false, volume);
    return std::move(volume);
  }

private:
  void count(fsdp::Sending sending, Level level, fsdp::LayoutOp layout,
             Sent sent) {
    StringRef what = sending.name;
    if (sent.symbol.empty())
      parts.add(what, level, sent.type, layout);
    auto it = llvm::find_if(volume.terms, [&](auto &term) {
      return term.what == what && term.level == level &&
             term.type == sent.type && term.elements == sent.symbol;
    });
    if (it != volume.terms.end())
      it->bytes += sent.bytes;
    else
      volume.terms.push_back({what.str(), level, sending.eachMicrobatch,
                              sent.bytes, sent.type.str(), sent.symbol.str()});
  }

  // The bytes are those of the flat buffers, without the shards' padding.
  // Groups hand on their sums in f32.
  void add(fsdp::Sending sending, fsdp::LayoutOp layout) {
    if (sending.form == fsdp::SentForm::ToOwners ||
        sending.form == fsdp::SentForm::FromOwners)
      return addMatrices(sending, layout);
    bool reduces = sending.form == fsdp::SentForm::HandedOver ||
                   sending.form == fsdp::SentForm::Reduced;
    if (fsdp::compressionOf(layout) && reduces)
      return addCompression(sending, layout);
    bool grouped = parts.cutOver(layout) == fsdp::CutOver::Group;
    bool inGroup = grouped || sending.name == fsdp::kGatherSecondary;
    count(sending, inGroup ? Level::Group : Level::Ranks, layout,
          wire.sent(layout, sending.form));
    if (grouped && reduces)
      count(sending, Level::Groups, layout, wire.wide(layout));
  }

  // Counts the parts of matrices that are sent to owners, or from owners to the
  // ranks that update these parts or to all ranks. The owner of a layout has
  // its matrices whole.
  void addMatrices(fsdp::Sending sending, fsdp::LayoutOp layout) {
    bool isBack = sending.form == fsdp::SentForm::FromOwners;
    fsdp::CutOver over = parts.cutOver(layout);
    if (over == fsdp::CutOver::Owner)
      return;
    Level level = isBack && fsdp::keepsWhole(layout, "state") ? Level::Ranks
                  : isBack && over == fsdp::CutOver::Group ? Level::GroupOwners
                                                           : Level::Owners;
    matrices.add(sending, level, parts.strategyOf(layout),
                 fsdp::memberElementsOf(layout));
    count(sending, level, layout, wire.sent(layout, sending.form));
  }

  // A reduction that sums what it sends gathers the sums.
  void addCompression(fsdp::Sending sending, fsdp::LayoutOp layout) {
    Sent sent = wire.compressed(layout);
    const char *sums = infoOf(fsdp::compressionOf(layout)).traffic.sums;
    if (!sums)
      return count(sending, Level::Each, layout, sent);
    count(sending, Level::Ranks, layout, sent);
    std::string gather = concat("gather_", sums);
    sending.name = gather;
    count(sending, Level::Ranks, layout, sent);
  }

  SymbolTable symbols;
  CommunicationVolume volume;
  Parts parts;
  Matrices matrices;
  Wire wire;
};

} // namespace

CommunicationVolume communicatedBytes(ModuleOp module) {
  Counter counter(module);
  // Counts a step only: evaluations communicate too, but are not part of it.
  func::FuncOp evaluate = fsdp::findEvaluate(module);
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (evaluate && op == evaluate)
      return WalkResult::skip();
    if (auto sending = dyn_cast<fsdp::SendsOpInterface>(op))
      counter.visit(sending);
    return WalkResult::advance();
  });
  return counter.finish(module);
}

} // namespace fsdpc::analysis
