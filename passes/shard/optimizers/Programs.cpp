// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of programs, and what all of them begin and end with: the gradient
// arrives averaged and with its norm clipped; its elements are clipped here,
// before --maximize turns them round. The average of --ema is taken of the new
// parameter.
#include "passes/shard/optimizers/Programs.h"

#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/options/GroupOptions.h"
#include "runtime/abi/manifest.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace fsdpc::passes {
namespace {

using Options = fsdp::CompileOptions;
using fsdp::Optimizer;

struct Program {
  Optimizer optimizer;
  StateNames (*states)(const Options &);
  Results (*build)(const Options &, Scalars, Arguments);
  // For an optimizer that takes sums over whole parameters: their names, and
  // the program whose results are summed.
  ArrayRef<StringRef> sums = {};
  Results (*buildSums)(const Options &, Scalars, Arguments) = nullptr;
  bool isFactored = false;
};

// The names of arguments in a dump: sums of squares of the parameter, the
// update and the gradient.
constexpr StringRef lambSums[] = {"sum_p2", "sum_u2"};
constexpr StringRef larsSums[] = {"sum_p2", "sum_g2"};
constexpr StringRef adafactorSums[] = {"sum_p2", "sum_u2", "elements"};

// The names of states are those of torch.optim's state_dict, since checkpoints
// and exports use them.
StateNames adamStates(const Options &options) {
  StateNames names = {"exp_avg", "exp_avg_sq"};
  if (options.amsgrad)
    names.push_back("max_exp_avg_sq");
  return names;
}

StateNames sgdStates(const Options &options) {
  return options.momentum() != 0 ? StateNames{"momentum_buffer"} : StateNames();
}

StateNames rmspropStates(const Options &options) {
  StateNames names = {"square_avg"};
  if (options.centered)
    names.push_back("grad_avg");
  if (options.momentum() != 0)
    names.push_back("momentum_buffer");
  return names;
}

template <size_t count> StateNames names(const char *const (&list)[count]) {
  return StateNames(std::begin(list), std::end(list));
}
StateNames adadeltaStates(const Options &) {
  return names({"square_avg", "acc_delta"});
}
StateNames adagradStates(const Options &) { return names({"sum"}); }
StateNames adamaxStates(const Options &) {
  return names({"exp_avg", "exp_inf"});
}
StateNames rpropStates(const Options &) { return names({"prev", "step_size"}); }
StateNames asgdStates(const Options &) { return names({"ax"}); }
StateNames adafactorStates(const Options &) { return {}; }
StateNames muonStates(const Options &) { return names({"momentum_buffer"}); }
StateNames lionStates(const Options &) { return names({"exp_avg"}); }

// One entry for each optimizer but User.
constexpr Program programs[] = {
    {Optimizer::AdamW, adamStates, buildAdam},
    {Optimizer::Adam, adamStates, buildAdam},
    {Optimizer::SGD, sgdStates, buildSGD},
    {Optimizer::Adadelta, adadeltaStates, buildAdadelta},
    {Optimizer::Adagrad, adagradStates, buildAdagrad},
    {Optimizer::Adamax, adamaxStates, buildAdamax},
    {Optimizer::NAdam, adamStates, buildNAdam},
    {Optimizer::RAdam, adamStates, buildRAdam},
    {Optimizer::RMSprop, rmspropStates, buildRMSprop},
    {Optimizer::Rprop, rpropStates, buildRprop},
    {Optimizer::ASGD, asgdStates, buildASGD},
    {Optimizer::Lion, lionStates, buildLion},
    {Optimizer::LAMB, adamStates, buildLAMB, lambSums, buildLAMBSums},
    {Optimizer::LARS, sgdStates, buildLARS, larsSums, buildLARSSums},
    {Optimizer::Adafactor, adafactorStates, buildAdafactor, adafactorSums,
     buildAdafactorSums, true},
    {Optimizer::Muon, muonStates, buildMuon},
};

const Program &programOf(const Options &options) {
  return *llvm::find_if(programs, [&](const Program &program) {
    return program.optimizer == options.optimizer;
  });
}

} // namespace

FailureOr<OptimizerProgram> OptimizerProgram::of(const Options &options,
                                                 MLIRContext *context) {
  OptimizerProgram program;
  program.options = options;
  if (options.optimizer != Optimizer::User) {
    program.names = programOf(options).states(options);
  } else {
    program.user = parseUserProgram(options.optimizer, context);
    if (!program.user)
      return failure();
    program.names = stateNames(program.user);
  }
  // Last, where the runtime looks for the average (Layout::average).
  if (options.ema > 0)
    program.names.push_back("ema");
  if (program.names.size() > size_t(mostStates)) {
    emitError(UnknownLoc::get(context))
        << "--optimizer '" << options.optimizer.name() << "' has "
        << program.names.size() << " states"
        << (options.ema > 0 ? " with that of --ema" : "") << "; the most are "
        << mostStates;
    return failure();
  }
  return program;
}

// torch.optim.swa_utils: get_ema_multi_avg_fn, whose AveragedModel begins with
// a copy of the parameters at its first update.
static Value averageOf(double decay, Scalars s, Value old, Value parameter,
                       Value step) {
  Value one = s.number(1, "one");
  Value kept = s.number(decay, "ema");
  Value average = s.average(old, parameter, one, kept, decay);
  // A parameter that is trained from a later step on has an average already.
  Value first = s.equal(step, one);
  Value isNew = s.equal(old, s.element(0, "none"));
  return s.select(first, s.select(isNew, parameter, average), average);
}

Arguments OptimizerProgram::prepare(Scalars s, Arguments in) const {
  if (options.ema > 0)
    in.states = in.states.drop_back();
  if (options.clipGradValue > 0) {
    Value limit = s.element(options.clipGradValue, "clip_value");
    Value least = s.neg(limit);
    // As torch.nn.utils.clip_grad_value_ does.
    in.gradient = s.min(s.max(in.gradient, least), limit);
  }
  if (options.maximize)
    in.gradient = s.neg(in.gradient);
  return in;
}

Results OptimizerProgram::build(Scalars s, Arguments in) const {
  // Taken before `prepare` drops it.
  Value average = options.ema > 0 ? in.states.back() : Value();
  in = prepare(s, in);
  Results results = user ? copyProgram(user, s, in)
                         : programOf(options).build(options, s, in);
  // All that is kept of the parameter, so the average is that of this.
  if (in.word)
    results.front() = nn::RoundStochasticOp::create(s.builder, s.loc,
                                                    results.front(), in.word);
  if (average)
    results.push_back(
        averageOf(options.ema, s, average, results.front(), in.step));
  return results;
}

FailureOr<std::vector<OptimizerProgram>> programsOf(const Options &options,
                                                    MLIRContext *context) {
  auto own = OptimizerProgram::of(options, context);
  if (failed(own))
    return failure();
  // Number 0 is that of the options; that of group i is number i + 1.
  std::vector<OptimizerProgram> programs = {std::move(*own)};
  // A file of the user's is parsed once, and its errors are emitted once.
  for (auto [group, same] :
       llvm::zip_equal(options.groups, fsdp::programsOf(options))) {
    if (same < programs.size()) {
      programs.push_back(programs[same]);
      continue;
    }
    auto program = OptimizerProgram::of(options.ofGroup(group), context);
    if (failed(program))
      return failure();
    programs.push_back(std::move(*program));
  }
  return programs;
}

ArrayRef<StringRef> OptimizerProgram::sums() const {
  return user ? ArrayRef<StringRef>() : programOf(options).sums;
}

bool OptimizerProgram::isOrthogonal() const {
  return options.optimizer == Optimizer::Muon;
}

bool OptimizerProgram::isFactored() const {
  return !user && programOf(options).isFactored;
}

Results OptimizerProgram::buildSums(Scalars s, Arguments in) const {
  in = prepare(s, in);
  return programOf(options).buildSums(options, s, in);
}

} // namespace fsdpc::passes
