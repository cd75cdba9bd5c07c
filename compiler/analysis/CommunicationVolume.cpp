// Counts the bytes that a program's collectives send.
//
// The count stands in the module as an attribute because the collectives do
// not outlive the conversion to runtime calls, while the summary is printed at
// the end of the compile.
#include "compiler/analysis/CommunicationVolume.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/fsdp/Options.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

#include <map>
#include <set>

using namespace mlir;

namespace fsdpc::analysis {

static constexpr llvm::StringLiteral communicationAttr = "fsdp.communication";

// A parameter is gathered for the forward and again for the backward. Frozen
// parameters are gathered too, but have no gradient.
std::string CommunicationVolume::formula() const {
  std::string sum;
  for (const Term &term : terms) {
    bool gathers = term.what == "all_gather";
    StringRef elements = term.elements;
    if (elements.empty())
      elements = gathers && frozen ? "(P+F)" : "P";
    sum += llvm::formatv("{0}{1}{2}{3}·{4}", sum.empty() ? "" : " + ",
                         term.eachMicrobatch ? "K·" : "", gathers ? "2·" : "",
                         elements, term.type)
               .str();
  }
  return "(N-1)/N · (" + sum + ")";
}

// Every collective of this list moves (N-1)/N of its buffer: a rank sends all
// shards except the one that it owns. With one rank the factor is 0.
double CommunicationVolume::bytes(int64_t ranks, int64_t microbatches) const {
  double sum = 0;
  for (const Term &term : terms)
    sum += double(term.bytes) * (term.eachMicrobatch ? microbatches : 1);
  return sum * double(ranks - 1) / double(ranks);
}

std::string CommunicationVolume::describe() const {
  std::string text =
      llvm::formatv(
          "communication per step: {0} bytes, N ranks, K microbatches, "
          "P = {1} trainable",
          formula(), trainable)
          .str();
  if (frozen)
    text += llvm::formatv(", F = {0} frozen elements", frozen).str();
  else
    text += " elements";
  for (const auto &[symbol, elements] : parts)
    text += llvm::formatv(", {0} = {1}", symbol, elements).str();
  for (const Term &term : terms)
    text += llvm::formatv("\n  {0}: {1} bytes per {2}", term.what, term.bytes,
                          term.eachMicrobatch ? "microbatch" : "step")
                .str();
  return text + "\n";
}

namespace {

// Names the elements that terms are about where layouts differ in strategy.
class Parts {
public:
  explicit Parts(ModuleOp module)
      : options(fsdp::CompileOptions::of(module)),
        strategies(fsdp::strategiesOf(module)) {}

  // The symbol of a layout's elements.
  std::string symbolOf(fsdp::LayoutOp layout) const {
    StringRef strategy = nameOf(fsdp::strategyOf(layout, options));
    return ((layout.getTrainable() ? "P[" : "F[") + strategy + "]").str();
  }

  // Counts the elements of all parts that a module has, and gives each term the
  // sum of the parts that its layouts belong to.
  void describe(ModuleOp module, CommunicationVolume &volume) const {
    if (strategies.size() < 2)
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
      const std::set<std::string> &found = terms.at(term.what);
      bool all = found.size() == trainable && *found.begin() >= "P";
      term.elements = all ? "P" : llvm::join(found, "+");
      if (!all && found.size() > 1)
        term.elements = "(" + term.elements + ")";
    }
  }

  void add(StringRef what, fsdp::LayoutOp layout) {
    terms[what.str()].insert(symbolOf(layout));
  }

private:
  fsdp::CompileOptions options;
  SmallVector<fsdp::Strategy> strategies;
  std::map<std::string, std::set<std::string>> terms; // symbols of each term
};

} // namespace

CommunicationVolume communicatedBytes(ModuleOp module) {
  SymbolTable symbols(module);
  CommunicationVolume volume;
  Parts parts(module);
  fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
  schedule::ElementType compute = options.paramType, wire = options.reduceType;
  for (auto layout : module.getOps<fsdp::LayoutOp>())
    for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>())
      (layout.getTrainable() ? volume.trainable : volume.frozen) +=
          member.getElements();

  // Sums the collectives of one kind. Each op counts once, so a parameter that
  // is gathered for the forward and again for the backward counts twice. The
  // bytes are those of the flat buffers, with their padding.
  auto add = [&](StringRef what, bool eachMicrobatch, ArrayAttr layouts,
                 schedule::ElementType type) {
    uint64_t bytes = 0;
    for (auto name : layouts.getAsRange<FlatSymbolRefAttr>()) {
      auto layout = symbols.lookup<fsdp::LayoutOp>(name.getValue());
      bytes += layout.getElements() * schedule::bytesOf(type);
      parts.add(what, layout);
    }
    auto it = llvm::find_if(volume.terms,
                            [&](auto &term) { return term.what == what; });
    if (it != volume.terms.end())
      it->bytes += bytes;
    else
      volume.terms.push_back(
          {what.str(), eachMicrobatch, bytes, fsdp::nameOf(type).str()});
  };
  module.walk([&](Operation *op) {
    TypeSwitch<Operation *>(op)
        .Case<fsdp::AllGatherOp, fsdp::AllGatherStartOp>([&](auto gather) {
          add("all_gather", true, gather.getLayouts(), compute);
        })
        .Case<fsdp::ReduceScatterOp, fsdp::ReduceScatterStartOp>(
            [&](auto reduce) {
              add("reduce_scatter", true, reduce.getLayouts(), wire);
            })
        .Case([&](fsdp::ReduceGradientsOp reduce) {
          add("reduce_gradients", false, reduce.getLayouts(), wire);
        })
        .Case([&](fsdp::GatherGradientsOp gather) {
          // ddp gathers gradients that are reduced already. They are f32 shards
          // of the accumulators, so the wire type does not apply.
          add("gather_gradients", false, gather.getLayouts(),
              schedule::ElementType::F32);
        })
        .Case([&](fsdp::GatherParametersOp gather) {
          add("gather_parameters", false, gather.getLayouts(), compute);
        });
  });
  parts.describe(module, volume);
  return volume;
}

void writeCommunication(ModuleOp module, const CommunicationVolume &volume) {
  Builder builder(module.getContext());
  auto number = [&](StringRef name, uint64_t value) {
    return builder.getNamedAttr(name, builder.getI64IntegerAttr(value));
  };
  auto text = [&](StringRef name, StringRef value) {
    return builder.getNamedAttr(name, builder.getStringAttr(value));
  };
  SmallVector<Attribute> terms;
  for (const CommunicationVolume::Term &term : volume.terms) {
    SmallVector<NamedAttribute> entries = {
        text("what", term.what), number("bytes", term.bytes),
        text("type", term.type),
        text("per", term.eachMicrobatch ? "microbatch" : "step")};
    if (!term.elements.empty())
      entries.push_back(text("elements", term.elements));
    terms.push_back(builder.getDictionaryAttr(entries));
  }
  SmallVector<NamedAttribute> whole = {
      number("trainable", volume.trainable), number("frozen", volume.frozen),
      builder.getNamedAttr("terms", builder.getArrayAttr(terms))};
  SmallVector<NamedAttribute> parts;
  for (const auto &[symbol, elements] : volume.parts)
    parts.push_back(number(symbol, elements));
  if (!parts.empty())
    whole.push_back(
        builder.getNamedAttr("parts", builder.getDictionaryAttr(parts)));
  module->setAttr(communicationAttr, builder.getDictionaryAttr(whole));
}

// The attribute may come from an edited dump, so nothing about its shape is
// taken for granted.
std::optional<CommunicationVolume> readCommunication(ModuleOp module) {
  auto whole = module->getAttrOfType<DictionaryAttr>(communicationAttr);
  if (!whole)
    return std::nullopt;
  auto trainable = whole.getAs<IntegerAttr>("trainable");
  auto frozen = whole.getAs<IntegerAttr>("frozen");
  auto terms = whole.getAs<ArrayAttr>("terms");
  if (!trainable || !frozen || !terms)
    return std::nullopt;
  CommunicationVolume volume;
  volume.trainable = trainable.getInt();
  volume.frozen = frozen.getInt();
  for (Attribute attribute : terms) {
    auto term = dyn_cast<DictionaryAttr>(attribute);
    auto what = term ? term.getAs<StringAttr>("what") : StringAttr();
    auto bytes = term ? term.getAs<IntegerAttr>("bytes") : IntegerAttr();
    auto type = term ? term.getAs<StringAttr>("type") : StringAttr();
    auto per = term ? term.getAs<StringAttr>("per") : StringAttr();
    if (!what || !bytes || !type || !per)
      return std::nullopt;
    auto elements = term.getAs<StringAttr>("elements");
    volume.terms.push_back({what.str(), per == "microbatch",
                            static_cast<uint64_t>(bytes.getInt()), type.str(),
                            elements ? elements.str() : ""});
  }
  if (auto parts = whole.getAs<DictionaryAttr>("parts"))
    for (NamedAttribute part : parts)
      if (auto elements = dyn_cast<IntegerAttr>(part.getValue()))
        volume.parts.emplace_back(part.getName().str(), elements.getInt());
  return volume;
}

} // namespace fsdpc::analysis
