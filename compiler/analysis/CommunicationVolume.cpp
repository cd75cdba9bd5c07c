// Counts the bytes that a program's collectives send.
//
// The count stands in the module as an attribute because the collectives do
// not outlive the conversion to runtime calls, while the summary is printed at
// the end of the compile.
#include "compiler/analysis/CommunicationVolume.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/fsdp/Options.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace fsdpc::analysis {

static constexpr llvm::StringLiteral communicationAttr = "fsdp.communication";

std::string CommunicationVolume::formula() const {
  // A parameter is gathered for the forward and again for the backward. Frozen
  // parameters are gathered too, but have no gradient.
  StringRef gathered = frozen ? "2·(P+F)" : "2·P";
  std::string sum;
  for (const Term &term : terms)
    sum += llvm::formatv("{0}{1}{2}·{3}", sum.empty() ? "" : " + ",
                         term.eachMicrobatch ? "K·" : "",
                         term.what == "all_gather" ? gathered : "P", term.type)
               .str();
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
  for (const Term &term : terms)
    text += llvm::formatv("\n  {0}: {1} bytes per {2}", term.what, term.bytes,
                          term.eachMicrobatch ? "microbatch" : "step")
                .str();
  return text + "\n";
}

CommunicationVolume communicatedBytes(ModuleOp module) {
  SymbolTable symbols(module);
  CommunicationVolume volume;
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
    for (auto name : layouts.getAsRange<FlatSymbolRefAttr>())
      bytes += symbols.lookup<fsdp::LayoutOp>(name.getValue()).getElements() *
               schedule::bytesOf(type);
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
  for (const CommunicationVolume::Term &term : volume.terms)
    terms.push_back(builder.getDictionaryAttr(
        {text("what", term.what), number("bytes", term.bytes),
         text("type", term.type),
         text("per", term.eachMicrobatch ? "microbatch" : "step")}));
  module->setAttr(
      communicationAttr,
      builder.getDictionaryAttr(
          {number("trainable", volume.trainable),
           number("frozen", volume.frozen),
           builder.getNamedAttr("terms", builder.getArrayAttr(terms))}));
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
    volume.terms.push_back({what.str(), per == "microbatch",
                            static_cast<uint64_t>(bytes.getInt()), type.str()});
  }
  return volume;
}

} // namespace fsdpc::analysis
