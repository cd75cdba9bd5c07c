// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Muon (Jordan et al., Muon: An optimizer for hidden layers in neural networks,
// 2024) as torch.optim.Muon computes it. Its update of a matrix is the momentum
// with all singular values made nearly equal, which fsdp.orthogonalize computes
// of whole matrices, the factor for the matrix's shape included. The program of
// an element computes only the momentum, the decay and the step.
#include "passes/shard/optimizers/Programs.h"

using namespace mlir;

namespace fsdpc::passes {

static Results buildMuon(const fsdp::CompileOptions &options, Scalars s,
                         Arguments in) {
  Value one = s.number(1, "one");
  Value momentum = s.number(options.momentum(), "momentum");
  // The op fsdp.momentum_updates has computed the same average for the matrix;
  // here it is only stored.
  Value average =
      s.average(in.states[0], in.gradient, one, momentum, options.momentum());
  in.decayParameter(s, one);
  Value change = s.mul(s.toElement(s.neg(in.lr)), in.number);
  return {s.add(in.parameter, change), average};
}

ArrayRef<Program> orthogonalPrograms() {
  static constexpr Program programs[] = {{"muon", buildMuon}};
  return programs;
}

} // namespace fsdpc::passes
