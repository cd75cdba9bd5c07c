// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the optimizer of onnxruntime-training's files: SGD, or AdamW in one of
// two forms. The one of PyTorch is --optimizer=adamw. The one of transformers
// adds epsilon before it corrects the averages, and decays the new value; it
// becomes a program as of --optimizer=FILE.mlir.
#include "frontends/onnx/RuntimeTraining.h"

#include "compiler/options/OptionTable.h"

#include "mlir/IR/Builders.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <charconv>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {

// Defaults are those of onnxruntime's schema.
struct Settings {
  bool isAdamW = false;
  float alpha = 0.9f, beta = 0.999f, epsilon = 1e-8f, weightDecay = 1e-2f;
  int64_t mode = 0, correctsBias = 1;
  float maxNorm = 0; // 0: gradients are not clipped
};

} // namespace

// onnxruntime's Optimizer begins with this rate.
constexpr StringLiteral kInitialRate = "0.001";

// Returns the shortest decimal that is this f32, which is what a user has
// written.
static std::string decimal(float value) {
  char text[32];
  auto end = std::to_chars(std::begin(text), std::end(text), value).ptr;
  return std::string(text, end);
}

static void readAttributes(const onnx::NodeProto &node, Settings &settings) {
  for (const auto &attribute : node.attribute()) {
    for (auto [name, to] : {std::pair("alpha", &settings.alpha),
                            std::pair("beta", &settings.beta),
                            std::pair("epsilon", &settings.epsilon),
                            std::pair("weight_decay", &settings.weightDecay)})
      if (attribute.name() == name)
        *to = attribute.f();
    if (attribute.name() == "adam_mode")
      settings.mode = attribute.i();
    if (attribute.name() == "correct_bias")
      settings.correctsBias = attribute.i();
  }
}

// onnxruntime clips to a norm of 1 if the node does not say another.
static LogicalResult readClipping(const onnx::NodeProto &node, StringRef file,
                                  Location loc, Settings &settings) {
  settings.maxNorm = 1;
  for (const auto &attribute : node.attribute()) {
    if (attribute.name() == "max_norm")
      settings.maxNorm = attribute.f();
    else if (attribute.name() != "norm_type" || attribute.s() != "fro")
      return emitError(loc)
             << "'" << file << "' has the node '" << node.name() << "' ("
             << node.op_type() << "), whose attribute '" << attribute.name()
             << "' is not supported; give --optimizer";
  }
  return success();
}

static FailureOr<Settings> readSettings(const onnx::GraphProto &graph,
                                        StringRef file, Location loc) {
  Settings settings;
  int optimizers = 0;
  for (const onnx::NodeProto &node : graph.node()) {
    StringRef op = node.op_type();
    bool isOptimizer = op == "AdamWOptimizer" || op == "SGDOptimizerV2";
    bool isClipping = op == "InplaceClipGradNorm";
    optimizers += isOptimizer;
    settings.isAdamW |= op == "AdamWOptimizer";
    if (op == "AdamWOptimizer")
      readAttributes(node, settings);
    if (isClipping && failed(readClipping(node, file, loc, settings)))
      return failure();
    if (!isOptimizer && !isClipping)
      return emitError(loc)
             << "'" << file << "' has the node '" << node.name() << "' (" << op
             << "), which is neither an optimizer nor a "
                "clipping of gradients; give --optimizer";
  }
  if (optimizers != 1)
    return emitError(loc) << "'" << file << "' has " << optimizers
                          << " optimizers; give --optimizer";
  return settings;
}

// A step's number begins at 1. Numbers are f64, elements f32.
static std::string adamWOfTransformers(const Settings &settings) {
  std::string text;
  llvm::raw_string_ostream out(text);
  auto number = [&](StringRef name, double value) {
    out << "  %" << name << " = arith.constant " << llvm::format("%.17e", value)
        << " : f64\n";
  };
  out << R"(func.func @adamw(%p: f32, %g: f32,
    %mean: f32 {fsdp.state = "exp_avg"}, %square: f32 {fsdp.state = "exp_avg_sq"},
    %lr: f64, %step: f64, %decay: f64) -> (f32, f32, f32) {
)";
  number("one", 1);
  number("alpha", settings.alpha);
  number("beta", settings.beta);
  number("epsilon", settings.epsilon);
  out << R"(  %other_alpha = arith.subf %one, %alpha : f64
  %other_beta = arith.subf %one, %beta : f64
  %a = arith.truncf %alpha : f64 to f32
  %a1 = arith.truncf %other_alpha : f64 to f32
  %b = arith.truncf %beta : f64 to f32
  %b1 = arith.truncf %other_beta : f64 to f32
  %e = arith.truncf %epsilon : f64 to f32
  %old_mean = arith.mulf %mean, %a : f32
  %new_mean = arith.mulf %g, %a1 : f32
  %m = arith.addf %old_mean, %new_mean : f32
  %gg = arith.mulf %g, %g : f32
  %old_square = arith.mulf %square, %b : f32
  %new_square = arith.mulf %gg, %b1 : f32
  %v = arith.addf %old_square, %new_square : f32
)";
  if (settings.correctsBias)
    out << R"(  %alphas = math.powf %alpha, %step : f64
  %betas = math.powf %beta, %step : f64
  %mean_share = arith.subf %one, %alphas : f64
  %square_share = arith.subf %one, %betas : f64
  %root_share = math.sqrt %square_share : f64
  %correction = arith.divf %root_share, %mean_share : f64
  %corrected = arith.mulf %lr, %correction : f64
  %rate = arith.truncf %corrected : f64 to f32
)";
  else
    out << "  %rate = arith.truncf %lr : f64 to f32\n";
  out << R"(  %root = math.sqrt %v : f32
  %size = arith.addf %root, %e : f32
  %direction = arith.divf %m, %size : f32
  %change = arith.mulf %rate, %direction : f32
  %moved = arith.subf %p, %change : f32
  %product = arith.mulf %lr, %decay : f64
  %rest = arith.subf %one, %product : f64
  %shrink = arith.truncf %rest : f64 to f32
  %result = arith.mulf %moved, %shrink : f32
  return %result, %m, %v : f32, f32, f32
}
)";
  return text;
}

LogicalResult frontend::adoptRuntimeOptimizer(const std::string &file,
                                              fsdp::CompileOptions &options,
                                              ImportSummary &summary,
                                              MLIRContext *context) {
  Location loc = UnknownLoc::get(context);
  std::unique_ptr<ModelFile> model =
      ModelFile::read(file, summary.budgets, context);
  if (!model)
    return failure();
  summary.files.insert(model->identity);
  auto settings = readSettings(model->proto.graph(), file, loc);
  if (failed(settings))
    return failure();
  std::string fault;
  auto set = [&](StringRef flag, StringRef text) {
    const fsdp::OptionInfo *option = fsdp::findOption(flag);
    if (fault.empty() && !llvm::is_contained(options.given, option))
      fault = fsdp::setOption(*option, text, options);
  };
  bool isOfTransformers = settings->isAdamW && settings->mode == 1;
  if (settings->isAdamW && !isOfTransformers && !settings->correctsBias)
    return emitError(loc) << "'" << file
                          << "' has an AdamW of PyTorch's form without the "
                             "correction of its averages; give --optimizer";
  if (isOfTransformers) {
    Builder builder(context);
    fault = fsdp::readOptions(
        builder.getDictionaryAttr(builder.getNamedAttr(
            "optimizer",
            builder.getStrArrayAttr({file, adamWOfTransformers(*settings)}))),
        options);
  } else {
    set("optimizer", settings->isAdamW ? "adamw" : "sgd");
  }
  if (settings->isAdamW && !isOfTransformers) {
    set("betas", decimal(settings->alpha) + "," + decimal(settings->beta));
    set("eps", decimal(settings->epsilon));
  }
  set("lr", kInitialRate);
  if (settings->isAdamW)
    set("weight-decay", decimal(settings->weightDecay));
  if (settings->maxNorm != 0)
    set("clip-grad-norm", decimal(settings->maxNorm));
  if (fault.empty())
    fault = fsdp::checkOptions(options);
  if (!fault.empty())
    return emitError(loc) << "the optimizer of '" << file
                          << "' does not fit the options: " << fault;
  summary.optimizer = std::string(settings->isAdamW ? "adamw" : "sgd") +
                      " of '" + file + "', lr " + decimal(float(options.lr()));
  return success();
}
