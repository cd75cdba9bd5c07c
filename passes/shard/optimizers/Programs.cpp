// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of programs, and what all of them begin and end with: the gradient
// arrives averaged and with its norm clipped; its elements are clipped here,
// before --maximize turns them round. The average of --ema is taken of the new
// parameter.
#include "passes/shard/optimizers/Programs.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/options/GroupOptions.h"
#include "runtime/abi/manifest.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace fsdpc::passes {

using Options = fsdp::CompileOptions;

ArrayRef<ArrayRef<Program>> allPrograms() {
  static const ArrayRef<Program> programs[] = {
      adamPrograms(),       adaptivePrograms(), sgdPrograms(),
      trustRatioPrograms(), factoredPrograms(), orthogonalPrograms()};
  return programs;
}

// Every row of the table of optimizers has one.
static const Program &programOf(const Options &options) {
  for (ArrayRef<Program> family : allPrograms())
    for (const Program &program : family)
      if (program.optimizer == options.optimizer.info->name)
        return program;
  llvm_unreachable("no file has the program of an optimizer");
}

FailureOr<OptimizerProgram> OptimizerProgram::of(const Options &options,
                                                 MLIRContext *context) {
  OptimizerProgram program;
  program.options = options;
  program.sumNames = fsdp::namesIn(options.optimizer.info->sums);
  if (!options.optimizer.isUser()) {
    program.names = fsdp::stateNames(options);
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

Results OptimizerProgram::buildSums(Scalars s, Arguments in) const {
  in = prepare(s, in);
  return programOf(options).buildSums(options, s, in);
}

} // namespace fsdpc::passes
