// build-update: builds @update. Optimizers are scalar programs after
// torch.optim (torch/optim/adam.py and sgd.py, the single-tensor forms). They
// keep its order of operations and its types, so that results can be compared
// with PyTorch's.
#include "passes/shard/Passes.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Options.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_BUILDUPDATE
#include "passes/shard/Passes.h.inc"

using namespace mlir;

namespace {

// Builds scalar arithmetic, in f32 or f64 as the operands are. A number that is
// combined with an element is rounded to f32 first, like PyTorch's scalars.
struct Scalars {
  OpBuilder &builder;
  Location loc;

  // The location names the constant, for readers of a dump.
  Value number(double value, StringRef name) {
    return arith::ConstantOp::create(
        builder, NameLoc::get(builder.getStringAttr(name), loc),
        builder.getF64FloatAttr(value));
  }
  Value toElement(Value x) {
    return arith::TruncFOp::create(builder, loc, builder.getF32Type(), x);
  }
  Value add(Value x, Value y) {
    return arith::AddFOp::create(builder, loc, x, y);
  }
  Value sub(Value x, Value y) {
    return arith::SubFOp::create(builder, loc, x, y);
  }
  Value mul(Value x, Value y) {
    return arith::MulFOp::create(builder, loc, x, y);
  }
  Value div(Value x, Value y) {
    return arith::DivFOp::create(builder, loc, x, y);
  }
  Value neg(Value x) { return arith::NegFOp::create(builder, loc, x); }
  Value sqrt(Value x) { return math::SqrtOp::create(builder, loc, x); }
  Value pow(Value x, Value y) {
    return math::PowFOp::create(builder, loc, x, y);
  }
  Value max(Value x, Value y) {
    return arith::MaximumFOp::create(builder, loc, x, y);
  }
};

// The arguments of the region, in the order that fsdp.optimizer documents:
// parameter, gradient and states are f32; learning rate, step (from 1) and
// decay are f64.
struct Arguments {
  explicit Arguments(Block &body, unsigned states)
      : parameter(body.getArgument(0)), gradient(body.getArgument(1)),
        states(body.getArguments().slice(2, states)),
        lr(body.getArgument(2 + states)), step(body.getArgument(3 + states)),
        decay(body.getArgument(4 + states)) {}
  Value parameter, gradient;
  ValueRange states;
  Value lr, step, decay;
};

// Adam and AdamW, with AMSGrad on demand. AdamW shrinks the parameter directly,
// Adam adds the decay to the gradient.
SmallVector<Value> buildAdam(const fsdp::CompileOptions &options, Scalars s,
                             Arguments in) {
  // Numbers stay f64 until they meet an element, as the Python floats of
  // torch.optim do.
  fsdp::Betas betas = options.betas;
  Value one = s.number(1, "one");
  Value beta1 = s.number(betas.first, "beta1");
  Value beta2 = s.number(betas.second, "beta2");
  Value eps = s.toElement(s.number(options.eps, "eps"));
  Value p = in.parameter;
  Value g = in.gradient;
  if (options.maximize)
    g = s.neg(g);
  if (options.optimizer == fsdp::Optimizer::AdamW) {
    Value shrink = s.toElement(s.sub(one, s.mul(in.lr, in.decay)));
    p = s.mul(p, shrink);
  } else {
    Value decay = s.toElement(in.decay);
    g = s.add(g, s.mul(decay, p));
  }

  // Tensor.lerp_ starts from the nearer end.
  Value step = s.sub(g, in.states[0]);
  Value m;
  if (1 - betas.first < 0.5) {
    Value weight = s.toElement(s.sub(one, beta1));
    m = s.add(in.states[0], s.mul(weight, step));
  } else {
    Value weight = s.toElement(beta1);
    m = s.sub(g, s.mul(step, weight));
  }
  Value kept = s.mul(in.states[1], s.toElement(beta2));
  Value added = s.mul(s.mul(s.toElement(s.sub(one, beta2)), g), g);
  Value v = s.add(kept, added);
  SmallVector<Value> states = {m, v};
  if (options.amsgrad)
    states.push_back(s.max(in.states[2], v));

  // The bias corrections 1 - beta^step.
  Value correction1 = s.sub(one, s.pow(beta1, in.step));
  Value correction2 = s.sqrt(s.sub(one, s.pow(beta2, in.step)));
  // A statement each: compilers evaluate arguments in orders of their own, and
  // the order of the ops should not depend on the compiler.
  Value scale = s.toElement(correction2);
  Value root = s.div(s.sqrt(states.back()), scale);
  Value denominator = s.add(root, eps);
  Value rate = s.toElement(s.neg(s.div(in.lr, correction1)));
  Value change = s.div(s.mul(rate, m), denominator);
  SmallVector<Value> results = {s.add(p, change)};
  results.append(states);
  return results;
}

// SGD with optional momentum and Nesterov momentum.
SmallVector<Value> buildSgd(const fsdp::CompileOptions &options, Scalars s,
                            Arguments in) {
  Value p = in.parameter;
  Value g = in.gradient;
  if (options.maximize)
    g = s.neg(g);
  Value decay = s.toElement(in.decay);
  g = s.add(g, s.mul(decay, p));
  SmallVector<Value> states;
  if (!in.states.empty()) {
    // States start at zero, so the buffer of the first step is the gradient.
    Value momentum = s.toElement(s.number(options.momentum, "momentum"));
    Value buffer = s.add(s.mul(in.states[0], momentum), g);
    states = {buffer};
    g = options.nesterov ? s.add(g, s.mul(momentum, buffer)) : buffer;
  }
  Value rate = s.toElement(s.neg(in.lr));
  SmallVector<Value> results = {s.add(p, s.mul(rate, g))};
  results.append(states);
  return results;
}

// Builds the op of one layout, with the program of the chosen optimizer in its
// region.
void buildOptimizer(OpBuilder &builder, const fsdp::CompileOptions &options,
                    fsdp::LayoutOp layout, Value scale) {
  auto optimizer = fsdp::OptimizerOp::create(
      builder, layout.getLoc(), FlatSymbolRefAttr::get(layout), scale);
  // Two elements (parameter and gradient), the states, and three scalars.
  unsigned states = layout.getStates();
  Block &body = optimizer.getBody().emplaceBlock();
  for (unsigned i = 0; i < states + 5; ++i)
    body.addArgument(i < states + 2 ? Type(builder.getF32Type())
                                    : Type(builder.getF64Type()),
                     layout.getLoc());
  OpBuilder inner = OpBuilder::atBlockEnd(&body);
  Scalars scalars{inner, layout.getLoc()};
  Arguments arguments(body, states);
  SmallVector<Value> results = options.optimizer == fsdp::Optimizer::SGD
                                   ? buildSgd(options, scalars, arguments)
                                   : buildAdam(options, scalars, arguments);
  fsdp::YieldOp::create(inner, layout.getLoc(), results);
}

struct BuildUpdate : impl::BuildUpdateBase<BuildUpdate> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
    SmallVector<fsdp::LayoutOp> layouts;
    SmallVector<Attribute> names;
    for (auto layout : module.getOps<fsdp::LayoutOp>())
      if (layout.getTrainable()) {
        layouts.push_back(layout);
        names.push_back(FlatSymbolRefAttr::get(layout));
      }
    if (layouts.empty()) {
      emitError(module.getLoc(), "no parameter is trained: none has a "
                                 "gradient; check --frozen and --trainable");
      return signalPassFailure();
    }
    auto builder = OpBuilder::atBlockEnd(module.getBody());
    Location loc = module.getLoc();
    // The entry function takes no arguments: all that it touches is behind
    // symbols.
    auto function =
        func::FuncOp::create(builder, loc, fsdp::FSDPDialect::kUpdate,
                             builder.getFunctionType({}, {}));
    builder.setInsertionPointToStart(function.addEntryBlock());
    ArrayAttr all = builder.getArrayAttr(names);
    auto sumsType = RankedTensorType::get({static_cast<int64_t>(names.size())},
                                          builder.getF64Type());
    // The norm is global, over all layouts. With a limit of 0 the scale still
    // is computed, since it also holds the factor 1/V.
    auto partial = fsdp::SumSquaresOp::create(builder, loc, sumsType, all);
    auto sums =
        fsdp::AllReduceOp::create(builder, loc, sumsType, partial.getResult());
    auto clip = fsdp::ClipScaleOp::create(
        builder, loc, RankedTensorType::get({}, builder.getF32Type()), all,
        sums.getResult(), builder.getF64FloatAttr(options.clipGradNorm));
    for (fsdp::LayoutOp layout : layouts)
      buildOptimizer(builder, options, layout, clip.getScale());
    func::ReturnOp::create(builder, loc);
  }
};

} // namespace
} // namespace fsdpc::passes
