// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of optimizers. Names and defaults are those of torch.optim 2.14.
// Three are not in it. Lion has those of its paper (Chen et al., Symbolic
// Discovery of Optimization Algorithms, 2023) with the learning rate that its
// authors' code has. LAMB and LARS have those of the code that most use, since
// their papers tune them for each model.
#include "compiler/options/Optimizers.h"

#include "compiler/options/OptionTable.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

using namespace mlir;

namespace fsdpc::fsdp {

// --no-decay goes with --weight-decay. --maximize and the clipping are for all.
constexpr NumberPair adamBetas = {0.9, 0.999};
constexpr OptimizerInfo optimizers[] = {
    {.name = "adamw",
     .hyperparameters = "betas|eps|weight-decay|no-decay|amsgrad",
     .states = "exp_avg|exp_avg_sq|max_exp_avg_sq?amsgrad",
     .decouplesDecay = true,
     .lr = 1e-3,
     .betas = adamBetas,
     .eps = 1e-8,
     .weightDecay = 1e-2},
    {.name = "adam",
     .hyperparameters =
         "betas|eps|weight-decay|no-decay|decoupled-weight-decay|amsgrad",
     .states = "exp_avg|exp_avg_sq|max_exp_avg_sq?amsgrad",
     .lr = 1e-3,
     .betas = adamBetas,
     .eps = 1e-8},
    {.name = "sgd",
     .hyperparameters = "momentum|dampening|nesterov|weight-decay|no-decay",
     .states = "momentum_buffer?momentum",
     .lr = 1e-3},
    {.name = "adadelta",
     .hyperparameters = "rho|eps|weight-decay|no-decay",
     .states = "square_avg|acc_delta",
     .lr = 1,
     .eps = 1e-6},
    {.name = "adagrad",
     .hyperparameters =
         "lr-decay|initial-accumulator-value|eps|weight-decay|no-decay",
     .states = "sum",
     .lr = 1e-2,
     .eps = 1e-10},
    {.name = "adamax",
     .hyperparameters = "betas|eps|weight-decay|no-decay",
     .states = "exp_avg|exp_inf",
     .lr = 2e-3,
     .betas = adamBetas,
     .eps = 1e-8},
    {.name = "nadam",
     .hyperparameters = "betas|eps|momentum-decay|weight-decay|no-decay|"
                        "decoupled-weight-decay",
     .states = "exp_avg|exp_avg_sq",
     .lr = 2e-3,
     .betas = adamBetas,
     .eps = 1e-8},
    {.name = "radam",
     .hyperparameters =
         "betas|eps|weight-decay|no-decay|decoupled-weight-decay",
     .states = "exp_avg|exp_avg_sq",
     .lr = 1e-3,
     .betas = adamBetas,
     .eps = 1e-8},
    {.name = "rmsprop",
     .hyperparameters = "alpha|eps|momentum|centered|weight-decay|no-decay",
     .states = "square_avg|grad_avg?centered|momentum_buffer?momentum",
     .lr = 1e-2,
     .eps = 1e-8,
     .alpha = 0.99},
    {.name = "rprop",
     .hyperparameters = "etas|step-sizes",
     .states = "prev|step_size",
     .lr = 1e-2},
    {.name = "asgd",
     .hyperparameters = "lambd|alpha|t0|weight-decay|no-decay",
     .states = "ax",
     .lr = 1e-2,
     .alpha = 0.75},
    {.name = "lion",
     .hyperparameters = "betas|weight-decay|no-decay",
     .states = "exp_avg",
     .lr = 1e-4,
     .betas = {0.9, 0.99}},
    {.name = "lamb",
     .hyperparameters = "betas|eps|weight-decay|no-decay",
     .states = "exp_avg|exp_avg_sq",
     .sums = "sum_p2|sum_u2",
     .lr = 1e-3,
     .betas = adamBetas,
     .eps = 1e-6,
     .weightDecay = 1e-2},
    {.name = "lars",
     .hyperparameters = "momentum|trust|eps|weight-decay|no-decay",
     .states = "momentum_buffer?momentum",
     .sums = "sum_p2|sum_g2",
     .lr = 1e-2,
     .eps = 1e-8,
     .weightDecay = 1e-4,
     .momentum = 0.9},
    {.name = "adafactor",
     .hyperparameters = "beta2-decay|eps|eps1|d|weight-decay|no-decay",
     .sums = "sum_p2|sum_u2|elements",
     .isFactored = true,
     .lr = 1e-2,
     .eps = 1e-3},
    {.name = "muon",
     .hyperparameters = "momentum|nesterov|ns-coefficients|ns-steps|eps|"
                        "adjust-lr-fn|muon-dtype|weight-decay|no-decay",
     .states = "momentum_buffer",
     .isOrthogonal = true,
     .nesterov = true,
     .lr = 1e-3,
     .eps = 1e-7,
     .weightDecay = 0.1,
     .momentum = 0.95},
};

// A program of the user's is given the decay; other numbers are its constants.
constexpr OptimizerInfo userInfo = {.name = "FILE.mlir",
                                    .hyperparameters = "weight-decay|no-decay",
                                    .lr = 1e-3};

ArrayRef<OptimizerInfo> allOptimizers() { return optimizers; }

const OptimizerInfo &userOptimizer() { return userInfo; }

bool takes(const OptimizerInfo &info, StringRef option) {
  return llvm::is_contained(namesIn(info.hyperparameters), option);
}

// Returns true if a hyperparameter is such that an optimizer keeps the states
// that depend on it.
static bool isOn(StringRef option, const CompileOptions &options) {
  if (option == "momentum")
    return options.momentum() != 0;
  if (option == "amsgrad")
    return options.amsgrad;
  assert(option == "centered" && "no state depends on another one");
  return options.centered;
}

StateNames stateNames(const CompileOptions &options) {
  StateNames names;
  for (StringRef state : namesIn(options.optimizer.info->states))
    if (auto [name, option] = state.split('?');
        option.empty() || isOn(option, options))
      names.push_back(name);
  return names;
}

double CompileOptions::lr() const {
  return givenLr.value_or(optimizer.info->lr);
}
double CompileOptions::eps() const {
  return givenEps.value_or(optimizer.info->eps);
}
double CompileOptions::weightDecay() const {
  return givenWeightDecay.value_or(optimizer.info->weightDecay);
}
double CompileOptions::momentum() const {
  return givenMomentum.value_or(optimizer.info->momentum);
}
bool CompileOptions::usesNesterov() const {
  bool given = llvm::is_contained(this->given, findOption("nesterov"));
  return given ? nesterov : optimizer.info->nesterov;
}
double CompileOptions::alpha() const {
  return givenAlpha.value_or(optimizer.info->alpha);
}
NumberPair CompileOptions::betas() const {
  return givenBetas.value_or(optimizer.info->betas);
}

} // namespace fsdpc::fsdp
