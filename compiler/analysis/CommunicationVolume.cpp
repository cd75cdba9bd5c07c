// Counts the bytes that a program's collectives send.
//
// The count stands in the module as an attribute because the collectives do
// not outlive the conversion to runtime calls, while the summary is printed at
// the end of the compile.
#include "compiler/analysis/CommunicationVolume.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Options.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "shared/top_k.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

#include <map>
#include <set>
#include <tuple>

using namespace mlir;

namespace fsdpc::analysis {

static constexpr llvm::StringLiteral communicationAttr = "fsdp.communication";
// The name of the term of gathers that read secondary shards.
static constexpr llvm::StringLiteral gatherSecondary = "gather_secondary";
// The elements that each rank sends in reductions of its largest ones, and
// those of the factors that are reduced in place of matrices.
static constexpr llvm::StringLiteral chosenSymbol = "T", factorSymbol = "R";

namespace {

// The names of the levels in output and dumps, in the order of the enum.
// `share` is the part of a buffer that a rank sends, `suffix` and `name` stand
// in the summary and in dumps.
struct LevelText {
  StringLiteral share, suffix, name;
};
constexpr LevelText levels[] = {{"(N-1)/N", "", "ranks"},
                                {"(G-1)/G", " in groups", "group"},
                                {"2(N-G)/(NG)", " across groups", "groups"},
                                {"(N-1)", " to each rank", "each"}};

const LevelText &textOf(Level level) { return levels[int(level)]; }

} // namespace

// A parameter is gathered for the forward and again for the backward, from
// secondary shards if there are any. Frozen parameters are gathered too, but
// have no gradient. Empty if no term is of this level.
static std::string sumOf(const CommunicationVolume &volume, Level level) {
  std::string sum;
  bool reshards =
      llvm::any_of(volume.terms, [](const CommunicationVolume::Term &term) {
        return term.what == gatherSecondary;
      });
  for (const CommunicationVolume::Term &term : volume.terms) {
    if (term.level != level)
      continue;
    bool gathers = term.what == "all_gather" || term.what == gatherSecondary;
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
  for (Level level : {Level::Ranks, Level::Group, Level::Groups, Level::Each})
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

namespace {

// Names the elements that terms are about where layouts differ in strategy,
// type or compression. A program of one strategy and type needs no names: then
// P and F say all.
class Parts {
public:
  explicit Parts(ModuleOp module)
      : options(fsdp::CompileOptions::of(module)),
        strategies(fsdp::strategiesOf(module)) {}

  // The symbol of a layout's elements.
  std::string symbolOf(fsdp::LayoutOp layout) const {
    StringRef strategy = nameOf(fsdp::strategyOf(layout, options));
    return ((layout.getTrainable() ? "P[" : "F[") + strategy +
            (fsdp::keepsF32(layout) ? " f32" : "") +
            (fsdp::compressionOf(layout) ? " compressed]" : "]"))
        .str();
  }

  // Counts the elements of all parts that a module has, and gives each term the
  // sum of the parts that its layouts belong to.
  void describe(ModuleOp module, CommunicationVolume &volume) const {
    auto layouts = module.getOps<fsdp::LayoutOp>();
    // power-sgd leaves layouts alone that have no large matrix.
    auto compresses = [](fsdp::LayoutOp layout) {
      return layout.getTrainable() && fsdp::compressionOf(layout);
    };
    auto sendsAll = [](fsdp::LayoutOp layout) {
      return layout.getTrainable() && !fsdp::compressionOf(layout);
    };
    bool mixed =
        llvm::any_of(layouts,
                     [](auto layout) { return fsdp::keepsF32(layout); }) ||
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

  bool isHybrid(fsdp::LayoutOp layout) const {
    return fsdp::isHybrid(fsdp::strategyOf(layout, options));
  }

private:
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

// How a program's collectives send a layout.
class Wire {
public:
  explicit Wire(fsdp::CompileOptions options) : options(std::move(options)) {}

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
    return inType(layout, schedule::ElementType::F32);
  }
  Sent reduced(fsdp::LayoutOp layout) const {
    return {fsdp::nameOf(options.reduceType),
            uint64_t(options.reducedBytes(layout.getElements()))};
  }
  // What a rank sends to each other one of its largest elements.
  static Sent chosen(int64_t topK) {
    return {"(i32+f32)", uint64_t(chosenBytes(topK)), chosenSymbol};
  }
  // What is summed over ranks: factors, and what has none.
  static Sent factors(fsdp::LayoutOp layout) {
    PowerSizes sizes = fsdp::powerSizesOf(layout);
    return {"f32", uint64_t(sizes.left + sizes.right) * sizeof(float),
            factorSymbol};
  }
  // On the host a 16-bit gradient travels as it is, and is widened where it is
  // summed (handedOver, runtime/comm/reduce.h), unless it travels in blocks.
  Sent handedOver(fsdp::LayoutOp layout) const {
    bool asItIs = !options.isCuda() && !options.reducesBlocks() &&
                  computeType(layout) != schedule::ElementType::F32;
    return asItIs ? computed(layout) : reduced(layout);
  }

private:
  static Sent inType(fsdp::LayoutOp layout, schedule::ElementType type) {
    return {fsdp::nameOf(type),
            uint64_t(layout.getElements() * schedule::bytesOf(type))};
  }
  schedule::ElementType computeType(fsdp::LayoutOp layout) const {
    return fsdp::keepsF32(layout) ? schedule::ElementType::F32
                                  : options.paramType;
  }

  fsdp::CompileOptions options;
};

// Adds the numbers that a microbatch sums over ranks, S, if there are any.
// Those of @update are not counted: they are a few per layout.
void addSums(ModuleOp module, CommunicationVolume &volume) {
  auto microbatch =
      module.lookupSymbol<func::FuncOp>(fsdp::FSDPDialect::kMicrobatch);
  if (!microbatch)
    return;
  uint64_t elements = 0;
  for (auto reduce : microbatch.getOps<fsdp::AllReduceOp>())
    elements += reduce.getType().getNumElements();
  if (elements == 0)
    return;
  volume.terms.push_back({"all_reduce", Level::Each, /*eachMicrobatch=*/true,
                          elements * sizeof(double), "f64", "S"});
  volume.parts.emplace_back("S", elements);
}

// Says how many elements T and R are. Each layout is reduced once.
void addCompressed(ModuleOp module, CommunicationVolume &volume) {
  uint64_t chosen = 0, factors = 0;
  for (auto layout : module.getOps<fsdp::LayoutOp>()) {
    fsdp::Compression compression = fsdp::compressionOf(layout);
    chosen += compression.topK;
    if (compression.powerRank)
      factors += Wire::factors(layout).bytes / sizeof(float);
  }
  if (chosen != 0)
    volume.parts.emplace_back(chosenSymbol, chosen);
  if (factors != 0)
    volume.parts.emplace_back(factorSymbol, factors);
}

} // namespace

CommunicationVolume communicatedBytes(ModuleOp module) {
  SymbolTable symbols(module);
  CommunicationVolume volume;
  Parts parts(module);
  Wire wire(fsdp::CompileOptions::of(module));
  for (auto layout : module.getOps<fsdp::LayoutOp>())
    for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>())
      (layout.getTrainable() ? volume.trainable : volume.frozen) +=
          member.getElements();

  auto count = [&](StringRef what, bool eachMicrobatch, Level level,
                   fsdp::LayoutOp layout, Sent sent) {
    if (sent.symbol.empty())
      parts.add(what, level, sent.type, layout);
    auto it = llvm::find_if(volume.terms, [&](auto &term) {
      return term.what == what && term.level == level &&
             term.type == sent.type && term.elements == sent.symbol;
    });
    if (it != volume.terms.end())
      it->bytes += sent.bytes;
    else
      volume.terms.push_back({what.str(), level, eachMicrobatch, sent.bytes,
                              sent.type.str(), sent.symbol.str()});
  };
  // Sums the collectives of one kind. Each op counts once, so a parameter that
  // is gathered for the forward and again for the backward counts twice. The
  // bytes are those of the flat buffers, without the shards' padding. Groups
  // hand on their sums in f32.
  auto add = [&](StringRef what, bool eachMicrobatch, ArrayAttr layouts,
                 Sent (Wire::*sentOf)(fsdp::LayoutOp) const) {
    for (auto name : layouts.getAsRange<FlatSymbolRefAttr>()) {
      auto layout = symbols.lookup<fsdp::LayoutOp>(name.getValue());
      fsdp::Compression compression = fsdp::compressionOf(layout);
      if (compression && what.starts_with("reduce")) {
        if (compression.topK) {
          count(what, eachMicrobatch, Level::Each, layout,
                Wire::chosen(compression.topK));
          continue;
        }
        count(what, eachMicrobatch, Level::Ranks, layout,
              Wire::factors(layout));
        count("gather_factors", eachMicrobatch, Level::Ranks, layout,
              Wire::factors(layout));
        continue;
      }
      bool hybrid = parts.isHybrid(layout);
      bool inGroup = hybrid || what == gatherSecondary;
      count(what, eachMicrobatch, inGroup ? Level::Group : Level::Ranks, layout,
            (wire.*sentOf)(layout));
      if (hybrid && what.starts_with("reduce"))
        count(what, eachMicrobatch, Level::Groups, layout, wire.wide(layout));
    }
  };
  // Counts a step only: evaluations communicate too, but are not part of it.
  func::FuncOp evaluate = fsdp::findEvaluate(module);
  module.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (evaluate && op == evaluate)
      return WalkResult::skip();
    TypeSwitch<Operation *>(op)
        .Case<fsdp::AllGatherOp, fsdp::AllGatherStartOp>([&](auto gather) {
          // Secondary shards hold what has been converted.
          if (gather.getFromSecondary())
            add(gatherSecondary, true, gather.getLayouts(), &Wire::computed);
          else
            add("all_gather", true, gather.getLayouts(), &Wire::gathered);
        })
        .Case<fsdp::ReduceScatterOp, fsdp::ReduceScatterStartOp>(
            [&](auto reduce) {
              add("reduce_scatter", true, reduce.getLayouts(),
                  &Wire::handedOver);
            })
        .Case([&](fsdp::ReduceGradientsOp reduce) {
          add("reduce_gradients", false, reduce.getLayouts(), &Wire::reduced);
        })
        .Case([&](fsdp::GatherGradientsOp gather) {
          // ddp gathers gradients that are reduced already. They are f32 shards
          // of the accumulators, so the wire type does not apply.
          add("gather_gradients", false, gather.getLayouts(), &Wire::wide);
        })
        .Case([&](fsdp::WholeGradientOp gather) {
          add("gather_gradients", false,
              ArrayAttr::get(gather.getContext(), gather.getLayoutAttr()),
              &Wire::wide);
        })
        .Case([&](fsdp::GatherParametersOp gather) {
          add("gather_parameters", false, gather.getLayouts(), &Wire::gathered);
        });
    return WalkResult::advance();
  });
  parts.describe(module, volume);
  addCompressed(module, volume);
  addSums(module, volume);
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
