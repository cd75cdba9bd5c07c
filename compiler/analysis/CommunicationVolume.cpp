// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints what a program's collectives send in the summary, and writes it to the
// module and reads it from there. CountedBytes.cpp counts it.
//
// The count stands in the module as an attribute because the collectives do
// not outlive the conversion to runtime calls, while the summary is printed at
// the end of the compile.
#include "compiler/analysis/CommunicationVolume.h"

#include "compiler/dialects/fsdp/Interfaces.h"

#include "mlir/IR/Builders.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace fsdpc::analysis {

static constexpr llvm::StringLiteral kCommunicationAttr = "fsdp.communication";

namespace {

// The names of the levels in output and dumps, in the order of the enum.
// `share` is the part of a buffer that a rank sends, `suffix` and `name` stand
// in the summary and in dumps.
struct LevelText {
  StringLiteral share, suffix, name;
};
constexpr LevelText levels[] = {
    {"(N-1)/N", "", "ranks"},
    {"(G-1)/G", " in groups", "group"},
    {"2(N-G)/(NG)", " across groups", "groups"},
    {"(N-1)", " to each rank", "each"},
    {"up to 1/N", " at most, by owners", "owners"},
    {"up to 1/G", " at most, by owners in groups", "group owners"}};

const LevelText &textOf(Level level) { return levels[int(level)]; }

} // namespace

// A parameter is gathered for the forward and again for the backward, from
// secondary shards if there are any. Frozen parameters are gathered too, but
// have no gradient. Empty if no term is of this level.
static std::string sumOf(const CommunicationVolume &volume, Level level) {
  std::string sum;
  bool reshards =
      llvm::any_of(volume.terms, [](const CommunicationVolume::Term &term) {
        return term.what == fsdp::kGatherSecondary;
      });
  for (const CommunicationVolume::Term &term : volume.terms) {
    if (term.level != level)
      continue;
    bool gathers =
        term.what == "all_gather" || term.what == fsdp::kGatherSecondary;
    bool twice =
        term.what == "all_gather" && !(reshards && term.level == Level::Ranks);
    StringRef elements = term.elements;
    if (elements.empty())
      elements = gathers && volume.frozen ? "(P+F)" : "P";
    sum += llvm::formatv("{0}{1}{2}{3}·{4}", sum.empty() ? "" : " + ",
                         term.eachMicrobatch ? "K·" : "", twice ? "2·" : "",
                         elements, term.type)
               .str();
  }
  return sum;
}

// A program without collectives has the first level all the same.
std::string CommunicationVolume::formula() const {
  std::string text;
  for (Level level : {Level::Ranks, Level::Group, Level::Groups, Level::Each,
                      Level::Owners, Level::GroupOwners})
    if (std::string sum = sumOf(*this, level); !sum.empty())
      text += (text.empty() ? "" : " + ") + textOf(level).share.str() + " · (" +
              sum + ")";
  return text.empty() ? (levels[0].share + " · ()").str() : text;
}

// A gather or a reduction sends all shards except the one that the rank owns.
// Across groups each but the last hands its sums of a shard to the next one,
// and the last one hands the complete sums to each of the others. With one
// rank, and with one group, nothing is sent.
double CommunicationVolume::bytes(Level level, int64_t ranks,
                                  int64_t groupRanks,
                                  int64_t microbatches) const {
  double sum = 0;
  for (const Term &term : terms)
    if (term.level == level)
      sum += double(term.bytes) * (term.eachMicrobatch ? microbatches : 1);
  if (level == Level::Groups)
    return 2 * sum * double(ranks - groupRanks) / double(ranks * groupRanks);
  if (level == Level::Each)
    return sum * double(ranks - 1);
  if (level == Level::Owners || level == Level::GroupOwners)
    return ranks == 1
               ? 0
               : sum / double(level == Level::Owners ? ranks : groupRanks);
  double over = double(level == Level::Ranks ? ranks : groupRanks);
  return sum * (over - 1) / over;
}

std::string CommunicationVolume::describe() const {
  bool grouped = llvm::any_of(terms, [](const Term &term) {
    return term.level == Level::Group || term.level == Level::Groups;
  });
  std::string text =
      llvm::formatv(
          "communication per step: {0} bytes, N ranks, {1}K microbatches, "
          "P = {2} trainable",
          formula(), grouped ? "G in a shard group, " : "", trainable)
          .str();
  if (frozen)
    text += llvm::formatv(", F = {0} frozen elements", frozen).str();
  else
    text += " elements";
  for (const auto &[symbol, elements] : parts)
    text += llvm::formatv(", {0} = {1}", symbol, elements).str();
  for (const Term &term : terms) {
    // With --keep-f32 there may be one per type.
    bool several =
        llvm::count_if(terms, [&](const Term &other) {
          return other.what == term.what && other.level == term.level;
        }) > 1;
    text += llvm::formatv("\n  {0}{1}{2}: {3} bytes per {4}", term.what,
                          several ? " in " + term.type : "",
                          textOf(term.level).suffix, term.bytes,
                          term.eachMicrobatch ? "microbatch" : "step")
                .str();
  }
  return text + "\n";
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
    if (term.level != Level::Ranks)
      entries.push_back(text("over", textOf(term.level).name));
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
  module->setAttr(kCommunicationAttr, builder.getDictionaryAttr(whole));
}

// The attribute may come from an edited dump, so nothing about its shape is
// taken for granted.
std::optional<CommunicationVolume> readCommunication(ModuleOp module) {
  auto whole = module->getAttrOfType<DictionaryAttr>(kCommunicationAttr);
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
    auto over = term.getAs<StringAttr>("over");
    auto level = llvm::find_if(levels, [&](const LevelText &text) {
      return text.name == (over ? over.getValue() : StringRef(levels[0].name));
    });
    if (level == std::end(levels))
      return std::nullopt;
    volume.terms.push_back({what.str(), Level(level - levels),
                            per == "microbatch",
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
