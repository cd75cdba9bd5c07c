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

using namespace llvm;

namespace fsdpc::fsdp {

// --no-decay goes with --weight-decay. --maximize and the clipping are for all.
constexpr NumberPair adamBetas = {0.9, 0.999};
constexpr OptimizerInfo table[] = {
    {.optimizer = Optimizer::AdamW,
     .name = "adamw",
     .hyperparameters = "betas|eps|weight-decay|no-decay|amsgrad",
     .lr = 1e-3,
     .betas = adamBetas,
     .eps = 1e-8,
     .weightDecay = 1e-2},
    {.optimizer = Optimizer::Adam,
     .name = "adam",
     .hyperparameters =
         "betas|eps|weight-decay|no-decay|decoupled-weight-decay|amsgrad",
     .lr = 1e-3,
     .betas = adamBetas,
     .eps = 1e-8},
    {.optimizer = Optimizer::SGD,
     .name = "sgd",
     .hyperparameters = "momentum|dampening|nesterov|weight-decay|no-decay",
     .lr = 1e-3},
    {.optimizer = Optimizer::Adadelta,
     .name = "adadelta",
     .hyperparameters = "rho|eps|weight-decay|no-decay",
     .lr = 1,
     .eps = 1e-6},
    {.optimizer = Optimizer::Adagrad,
     .name = "adagrad",
     .hyperparameters =
         "lr-decay|initial-accumulator-value|eps|weight-decay|no-decay",
     .lr = 1e-2,
     .eps = 1e-10},
    {.optimizer = Optimizer::Adamax,
     .name = "adamax",
     .hyperparameters = "betas|eps|weight-decay|no-decay",
     .lr = 2e-3,
     .betas = adamBetas,
     .eps = 1e-8},
    {.optimizer = Optimizer::NAdam,
     .name = "nadam",
     .hyperparameters = "betas|eps|momentum-decay|weight-decay|no-decay|"
                        "decoupled-weight-decay",
     .lr = 2e-3,
     .betas = adamBetas,
     .eps = 1e-8},
    {.optimizer = Optimizer::RAdam,
     .name = "radam",
     .hyperparameters =
         "betas|eps|weight-decay|no-decay|decoupled-weight-decay",
     .lr = 1e-3,
     .betas = adamBetas,
     .eps = 1e-8},
    {.optimizer = Optimizer::RMSprop,
     .name = "rmsprop",
     .hyperparameters = "alpha|eps|momentum|centered|weight-decay|no-decay",
     .lr = 1e-2,
     .eps = 1e-8,
     .alpha = 0.99},
    {.optimizer = Optimizer::Rprop,
     .name = "rprop",
     .hyperparameters = "etas|step-sizes",
     .lr = 1e-2},
    {.optimizer = Optimizer::ASGD,
     .name = "asgd",
     .hyperparameters = "lambd|alpha|t0|weight-decay|no-decay",
     .lr = 1e-2,
     .alpha = 0.75},
    {.optimizer = Optimizer::Lion,
     .name = "lion",
     .hyperparameters = "betas|weight-decay|no-decay",
     .lr = 1e-4,
     .betas = {0.9, 0.99}},
    {.optimizer = Optimizer::LAMB,
     .name = "lamb",
     .hyperparameters = "betas|eps|weight-decay|no-decay",
     .lr = 1e-3,
     .betas = adamBetas,
     .eps = 1e-6,
     .weightDecay = 1e-2},
    {.optimizer = Optimizer::LARS,
     .name = "lars",
     .hyperparameters = "momentum|trust|eps|weight-decay|no-decay",
     .lr = 1e-2,
     .eps = 1e-8,
     .weightDecay = 1e-4,
     .momentum = 0.9},
    {.optimizer = Optimizer::Adafactor,
     .name = "adafactor",
     .hyperparameters = "beta2-decay|eps|eps1|d|weight-decay|no-decay",
     .lr = 1e-2,
     .eps = 1e-3},
    {.optimizer = Optimizer::Muon,
     .name = "muon",
     .hyperparameters = "momentum|nesterov|ns-coefficients|ns-steps|eps|"
                        "adjust-lr-fn|muon-dtype|weight-decay|no-decay",
     .lr = 1e-3,
     .eps = 1e-7,
     .weightDecay = 0.1,
     .momentum = 0.95},
};

// A program of the user's is given the decay; other numbers are its constants.
constexpr OptimizerInfo userInfo = {.optimizer = Optimizer::User,
                                    .name = "FILE.mlir",
                                    .hyperparameters = "weight-decay|no-decay",
                                    .lr = 1e-3};

ArrayRef<OptimizerInfo> allOptimizers() { return table; }

const OptimizerInfo &infoOf(Optimizer optimizer) {
  if (optimizer == Optimizer::User)
    return userInfo;
  return *find_if(table, [&](const OptimizerInfo &info) {
    return info.optimizer == optimizer;
  });
}

bool takes(const OptimizerInfo &info, StringRef option) {
  // The names lie in one string per row, so that the table can be constexpr.
  SmallVector<StringRef> names;
  info.hyperparameters.split(names, '|');
  return is_contained(names, option);
}

double CompileOptions::lr() const {
  return givenLr.value_or(infoOf(optimizer).lr);
}
double CompileOptions::eps() const {
  return givenEps.value_or(infoOf(optimizer).eps);
}
double CompileOptions::weightDecay() const {
  return givenWeightDecay.value_or(infoOf(optimizer).weightDecay);
}
double CompileOptions::momentum() const {
  return givenMomentum.value_or(infoOf(optimizer).momentum);
}
bool CompileOptions::usesNesterov() const {
  bool given = llvm::is_contained(this->given, findOption("nesterov"));
  return given ? nesterov : optimizer == Optimizer::Muon;
}
double CompileOptions::alpha() const {
  return givenAlpha.value_or(infoOf(optimizer).alpha);
}
NumberPair CompileOptions::betas() const {
  return givenBetas.value_or(infoOf(optimizer).betas);
}

} // namespace fsdpc::fsdp
