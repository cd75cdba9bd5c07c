// The manifest of a program, from the final module's symbols and options.
#include "compiler/codegen/ManifestBuilder.h"

#include "compiler/dialects/fsdp/ModuleManifest.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using fsdp::dtypeName;

static std::string hash(StringRef text) {
  llvm::SHA256 sha;
  sha.update(text);
  auto digest = sha.final();
  return llvm::toHex(ArrayRef<uint8_t>(digest).take_front(8),
                     /*LowerCase=*/true);
}

std::string fsdpc::hashProgram(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream,
               OpPrintingFlags().useLocalScope().elideLargeElementsAttrs(
                   /*largeElementLimit=*/1 << 30));
  return hash(text);
}

// Starts of collectives in their total order: ranks must agree on it.
static std::string hashSchedule(ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.walk([&](Operation *op) {
    if (isa<rt::AllGatherOp, rt::ReduceScatterOp, rt::AllReduceOp,
            rt::ReduceGradientsOp, rt::GatherGradientsOp,
            rt::UpdateStatisticsOp>(op)) {
      stream << op->getName();
      if (Attribute layouts = op->getAttr("layouts"))
        stream << layouts;
      stream << '\n';
    }
  });
  return hash(text);
}

static std::vector<int64_t> values(DenseI64ArrayAttr array) {
  return array.asArrayRef().vec();
}

// Where the initial value of a parameter or buffer lies.
template <typename SymbolOp>
static Source sourceOf(SymbolOp op, const ProgramTables &tables) {
  auto tensor = cast<RankedTensorType>(op.getType());
  Source source;
  source.kind = "none";
  source.dtype = dtypeName(tensor.getElementType());
  if (fsdp::SourceAttr file = op.getSourceAttr()) {
    source.kind = "file";
    source.file = file.getFile();
    source.offset = file.getOffset();
    source.length = file.getLength();
    source.hash = file.getHash();
    source.dtype = file.getDtype();
  } else if (op.getValue()) {
    source.kind = "embedded";
    source.offset = tables.weightOffsets.lookup(op.getSymNameAttr());
    source.length =
        tensor.getNumElements() * ((tensor.getElementTypeBitWidth() + 7) / 8);
  } else if (std::optional<StringRef> rule = op.getRule()) {
    source.kind = "rule";
    source.rule = rule->str();
  }
  return source;
}

static void addSources(ModuleOp module, const ProgramTables &tables,
                       Manifest &manifest) {
  for (Layout &layout : manifest.layouts)
    for (Member &member : layout.members)
      member.source =
          sourceOf(module.lookupSymbol<fsdp::ParameterOp>(member.name), tables);
  for (Buffer &buffer : manifest.buffers)
    buffer.source =
        sourceOf(module.lookupSymbol<fsdp::BufferOp>(buffer.name), tables);
}

static Input inputOf(rt::InputOp op) {
  auto type = cast<RankedTensorType>(op.getType());
  Input input;
  input.name = op.getSymName().str();
  input.shape = type.getShape().vec();
  input.dtype = dtypeName(type.getElementType());
  input.bound = op.getBound().value_or(0);
  input.hasIgnored = op.getIgnored().has_value();
  input.ignored = op.getIgnored().value_or(0);
  return input;
}

static MatmulPlan matmulOf(rt::MatmulPlanAttr attribute) {
  MatmulPlan plan;
  plan.batch = values(attribute.getBatch());
  plan.strideA = values(attribute.getStrideA());
  plan.strideB = values(attribute.getStrideB());
  plan.strideC = values(attribute.getStrideC());
  plan.m = attribute.getM();
  plan.n = attribute.getN();
  plan.k = attribute.getK();
  plan.transposeA = attribute.getTransposeA();
  plan.transposeB = attribute.getTransposeB();
  plan.lda = plan.transposeA ? plan.m : plan.k;
  plan.ldb = plan.transposeB ? plan.k : plan.n;
  plan.ldc = plan.n;
  plan.dtypeA = dtypeName(attribute.getA());
  plan.dtypeB = dtypeName(attribute.getB());
  plan.dtypeC = dtypeName(attribute.getC());
  plan.accumulate = attribute.getAccumulate();
  return plan;
}

static ConvolutionPlan convolutionOf(rt::ConvolutionPlanAttr attribute) {
  ConvolutionPlan plan;
  plan.kind = attribute.getKind();
  plan.dtype = dtypeName(attribute.getElement());
  ArrayRef<int64_t> input = attribute.getInput().asArrayRef();
  ArrayRef<int64_t> filter = attribute.getFilter().asArrayRef();
  ArrayRef<int64_t> output = attribute.getOutput().asArrayRef();
  ArrayRef<int64_t> pads = attribute.getPads().asArrayRef();
  plan.batch = input[0];
  plan.channels = input[1];
  plan.height = input[2];
  plan.width = input[3];
  plan.filters = filter[0];
  plan.kernelHeight = filter[2];
  plan.kernelWidth = filter[3];
  plan.groups = attribute.getGroups();
  plan.outHeight = output[2];
  plan.outWidth = output[3];
  plan.strides = values(attribute.getStrides());
  plan.padsBegin = {pads[0], pads[1]};
  plan.padsEnd = {pads[2], pads[3]};
  plan.dilations = values(attribute.getDilations());
  return plan;
}

static PoolingPlan poolingOf(rt::PoolingPlanAttr attribute) {
  PoolingPlan plan;
  plan.kind = attribute.getKind();
  plan.dtype = dtypeName(attribute.getElement());
  ArrayRef<int64_t> input = attribute.getInput().asArrayRef();
  ArrayRef<int64_t> output = attribute.getOutput().asArrayRef();
  ArrayRef<int64_t> pads = attribute.getPads().asArrayRef();
  plan.batch = input[0];
  plan.channels = input[1];
  plan.height = input[2];
  plan.width = input[3];
  plan.outHeight = output[2];
  plan.outWidth = output[3];
  plan.kernel = values(attribute.getKernel());
  plan.strides = values(attribute.getStrides());
  plan.padsBegin = {pads[0], pads[1]};
  plan.padsEnd = {pads[2], pads[3]};
  plan.countPadding = attribute.getCountPadding();
  return plan;
}

static void addArena(ModuleOp module, Manifest &manifest) {
  auto arena = module->getAttrOfType<DictionaryAttr>("fsdp.arena");
  auto bytes = [&](StringRef name) {
    auto value = arena ? arena.getAs<IntegerAttr>(name) : IntegerAttr();
    return value ? value.getInt() : 0;
  };
  manifest.arenaBytes = bytes("bytes");
  manifest.arenaGathered = bytes("gathered");
  manifest.arenaGradients = bytes("gradients");
  manifest.arenaActivations = bytes("activations");
}

Manifest fsdpc::buildManifest(ModuleOp module, ProgramTables &tables) {
  Manifest manifest = fsdp::describeModule(module);
  manifest.compiler = "fsdpc " FSDPC_VERSION;
  addArena(module, manifest);
  manifest.scheduleHash = hashSchedule(module);
  manifest.programHash = hashProgram(module);
  manifest.events = tables.events;
  manifest.constantBytes = tables.constants.size();
  addSources(module, tables, manifest);
  for (Operation &op : *module.getBody()) {
    if (auto input = dyn_cast<rt::InputOp>(op))
      manifest.inputs.push_back(inputOf(input));
    else if (auto stack = op.getAttrOfType<IntegerAttr>("nn.stack"))
      manifest.stackBytes = std::max(manifest.stackBytes, stack.getInt());
  }
  // Throughput counts tokens where the first input is a batch of sequences.
  if (!manifest.inputs.empty() && manifest.inputs[0].shape.size() == 2 &&
      manifest.inputs[0].dtype == "i64")
    manifest.tokensInput = manifest.inputs[0].name;
  for (auto &[plan, index] : tables.matmuls)
    manifest.matmuls.push_back(matmulOf(cast<rt::MatmulPlanAttr>(plan)));
  for (auto &[plan, index] : tables.convolutions)
    manifest.convolutions.push_back(
        convolutionOf(cast<rt::ConvolutionPlanAttr>(plan)));
  for (auto &[plan, index] : tables.poolings)
    manifest.poolings.push_back(poolingOf(cast<rt::PoolingPlanAttr>(plan)));
  return manifest;
}
