// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes the update of a model's own training the optimizer of the compile: one
// scalar program for all parameters. What differs among them is refused, but
// for the rate, for which there are groups.
#include "frontends/onnx/ModelOptimizer.h"

#include "compiler/options/OptionTypes.h"
#include "runtime/abi/manifest.h"
#include "runtime/support/concat.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Regex.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {

class Adoption {
public:
  Adoption(ImportedUpdate &update, GraphImporter &importer,
           ParameterTable &parameters, fsdp::CompileOptions &options)
      : update(update), importer(importer), parameters(parameters),
        options(options), loc(importer.emitter().builder.getUnknownLoc()) {}

  LogicalResult run(ImportSummary &summary);

private:
  InFlightDiagnostic refuse() {
    return emitError(loc) << "the optimizer of '" << importer.path() << "' ";
  }
  LogicalResult checkSlice(const UpdateSlice &slice);
  LogicalResult addProgram(UpdateSlice slice);
  FailureOr<const UpdateArgument *> rateOf(const UpdateSlice &slice);
  LogicalResult setRate(const UpdateSlice &slice);
  std::vector<std::string> nameStates(const UpdateSlice &slice) const;
  LogicalResult setOptions();

  ImportedUpdate &update;
  GraphImporter &importer;
  ParameterTable &parameters;
  fsdp::CompileOptions &options;
  Location loc;
  // The parameter to which a state belongs.
  llvm::DenseMap<const UpdateArgument *, const UpdateArgument *> owners;
  // The names for the first parameter, and so for all others.
  std::vector<std::string> stateNames;
  std::string program;
  const UpdateArgument *first = nullptr, *rate = nullptr;
  std::vector<std::string> rateGroups; // texts of --group
};

} // namespace

// Refuses what one scalar program with states of its own cannot hold.
LogicalResult Adoption::checkSlice(const UpdateSlice &slice) {
  const UpdateArgument &parameter = *slice.parameter;
  const UpdateArgument &gradient = *(&parameter + 1);
  for (const UpdateArgument *other : slice.others)
    if (other->kind != UpdateArgument::number && other != &gradient)
      return refuse() << "updates '" << parameter.tensor << "' by '"
                      << other->tensor << "', which belongs to another "
                      << "parameter; train with --optimizer";
  if (slice.states.size() > size_t(mostStates))
    return refuse() << "has " << slice.states.size() << " states of '"
                    << parameter.tensor << "'; the most are " << mostStates;
  for (const UpdateArgument *state : slice.states) {
    auto [owner, isNew] = owners.try_emplace(state, &parameter);
    if (!isNew)
      return refuse() << "has the state '" << state->tensor << "' for both '"
                      << owner->second->tensor << "' and '" << parameter.tensor
                      << "'; give each parameter its own";
    if (!isa<FloatType>(elementOf(state->value)) ||
        shapeOf(state->value) != shapeOf(parameter.value))
      return refuse() << "has the state '" << state->tensor << "' of type "
                      << state->value.getType() << " for '" << parameter.tensor
                      << "' of type " << parameter.value.getType()
                      << "; a state has a float per element";
    if (state->isUneven)
      return refuse() << "starts the state '" << state->tensor
                      << "' with several values; a state starts with one "
                         "number, since it is no weight: to go on with a "
                         "training, use checkpoints";
  }
  if (!importer.emitter().spend(Cost::ops, int64_t(slice.ops.size())))
    return refuse() << "needs " << Budgets::exceeded(Cost::ops);
  return success();
}

// torch's names where the node has them, so that checkpoints convert; else what
// the state's name has beside the parameter's.
std::vector<std::string> Adoption::nameStates(const UpdateSlice &slice) const {
  std::vector<std::string> names;
  for (const UpdateArgument *state : slice.states) {
    std::string name = state->torchName;
    if (name.empty()) {
      auto [before, after] =
          StringRef(state->tensor).split(slice.parameter->tensor);
      name = (before + after).str();
      name = StringRef(name).trim("._-/:").str();
    }
    if (name.empty() || llvm::is_contained(names, name) ||
        !llvm::all_of(name,
                      [](char c) { return llvm::isAlnum(c) || c == '_'; }))
      name = concat("state", names.size());
    names.push_back(std::move(name));
  }
  return names;
}

// Returns the number that begins with the learning rate, or null.
FailureOr<const UpdateArgument *> Adoption::rateOf(const UpdateSlice &slice) {
  const UpdateArgument *found = nullptr;
  for (const UpdateArgument *other : slice.others) {
    if (!other->isRate)
      continue;
    if (found)
      return refuse() << "has two learning rates for '"
                      << slice.parameter->tensor << "', '" << found->tensor
                      << "' and '" << other->tensor
                      << "'; keep one and multiply it";
    found = other;
  }
  return found;
}

// A parameter with another rate than the first one becomes a group. The user's
// --lr takes the place of all rates.
LogicalResult Adoption::setRate(const UpdateSlice &slice) {
  auto own = rateOf(slice);
  if (failed(own))
    return failure();
  if (slice.parameter == first)
    rate = *own;
  // The first one's program has no rate where nothing that it reads is one.
  if (!*own || !rate || options.givenLr || (*own)->initial == rate->initial)
    return success();
  std::string pattern =
      "^" + llvm::Regex::escape(slice.parameter->tensor) + "$";
  rateGroups.push_back(pattern + ": lr=" + fsdp::printNumber((*own)->initial));
  return success();
}

LogicalResult Adoption::addProgram(UpdateSlice slice) {
  const UpdateArgument &parameter = *slice.parameter;
  bool isFirst = !first;
  if (isFirst) {
    first = &parameter;
    stateNames = nameStates(slice);
  }
  bool isAlike = stateNames.size() == slice.states.size();
  if (isAlike) {
    auto printed = printScalarProgram(slice, update.arguments, stateNames);
    if (failed(printed))
      return failure();
    isAlike = isFirst || *printed == program;
    program = std::move(*printed);
  }
  if (!isAlike)
    return refuse() << "updates '" << parameter.tensor
                    << "' in another way than '" << first->tensor
                    << "'; a program has one update: make their attributes "
                       "and states alike, or give --optimizer";
  return setRate(slice);
}

// The user's --lr takes the place of the model's. Flags that the program would
// not heed are refused.
LogicalResult Adoption::setOptions() {
  auto isGiven = [&](StringRef flag) {
    return llvm::is_contained(options.given, fsdp::findOption(flag));
  };
  Builder builder(loc.getContext());
  auto attribute = builder.getDictionaryAttr(builder.getNamedAttr(
      "optimizer", builder.getStrArrayAttr(
                       {importer.path().str() + ":training_info", program})));
  std::string fault = fsdp::readOptions(attribute, options);
  assert(fault.empty() && "the form is that of a user's file");
  for (StringRef flag : {"weight-decay", "no-decay"})
    if (isGiven(flag) ||
        llvm::any_of(options.groups, [&](const fsdp::ParameterGroup &group) {
          return group.find(flag) && !group.find("optimizer");
        }))
      return refuse() << "has its weight decay in its nodes, so --" << flag
                      << " has no effect; give --optimizer as well";
  if (!rate && isGiven("lr"))
    return refuse() << "has no learning rate that --lr could replace; call "
                       "its initializer 'learning_rate', or give --optimizer";
  if (rate && !isGiven("lr")) {
    if (rate->isFed)
      return refuse() << "takes its learning rate from the input '"
                      << rate->tensor << "'; give it with --lr";
    if (!rateGroups.empty() && isGiven("group"))
      return refuse() << "has several learning rates; give one with --lr, and "
                         "others with --group";
    fault = fsdp::setOption(*fsdp::findOption("lr"),
                            fsdp::printNumber(rate->initial), options);
    for (const std::string &group : rateGroups)
      if (fault.empty())
        fault = fsdp::setOption(*fsdp::findOption("group"), group, options);
  }
  if (fault.empty())
    fault = fsdp::checkOptions(options);
  if (!fault.empty())
    return refuse() << "does not fit the options: " << fault;
  return success();
}

LogicalResult Adoption::run(ImportSummary &summary) {
  for (UpdateArgument &argument : update.arguments.list) {
    if (argument.kind != UpdateArgument::parameter)
      continue;
    UpdateSlice slice = sliceOf(argument, update.arguments);
    // A frozen parameter has states as well, which nothing updates.
    if (failed(checkSlice(slice)) || (parameters.mayTrain(argument.tensor) &&
                                      failed(addProgram(std::move(slice)))))
      return failure();
  }
  for (const UpdateArgument &argument : update.arguments.list)
    if (argument.kind == UpdateArgument::state && !owners.contains(&argument))
      return refuse() << "updates '" << argument.tensor
                      << "', which no parameter's update reads; remove the "
                         "binding, or keep averages with --ema";
  if (!first)
    return success(); // all are frozen, which the import reports
  if (failed(setOptions()))
    return failure();
  summary.optimizer = "of the model's training_info" +
                      (update.kinds.empty() ? "" : " (" + update.kinds + ")");
  if (rate)
    summary.optimizer += ", lr " + fsdp::printNumber(options.lr());
  return success();
}

LogicalResult frontend::adoptOptimizer(ImportedUpdate &update,
                                       GraphImporter &importer,
                                       ParameterTable &parameters,
                                       fsdp::CompileOptions &options,
                                       ImportSummary &summary) {
  return Adoption(update, importer, parameters, options).run(summary);
}
