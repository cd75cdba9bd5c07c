// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adafactor (Shazeer and Stern, Adafactor: Adaptive Learning Rates with
// Sublinear Memory Cost, 2018) as torch.optim.Adafactor computes it. The
// average of a gradient's squares is the product of a number of its row and one
// of its column, which fsdp.update_factors keeps and the runtime multiplies, so
// the program takes the average and has no state for it.
//
// The update is limited by its own root mean square, and scaled by the
// parameter's. Both are sums over whole parameters, as is the number of
// elements: each of them counts 1.
#include "passes/shard/optimizers/Programs.h"

using namespace mlir;

namespace fsdpc::passes {

// Returns the gradient over the root of the average, which is at least eps1².
// Both programs of Adafactor build it, which costs less than to keep it.
static Value updateOf(const fsdp::CompileOptions &options, Scalars s,
                      Arguments in) {
  Value eps1 = s.number(options.eps1, "eps1");
  Value least = s.toElement(s.mul(eps1, eps1));
  Value root = s.sqrt(s.max(in.number, least));
  return s.div(in.gradient, root);
}

static Results buildAdafactorSums(const fsdp::CompileOptions &options,
                                  Scalars s, Arguments in) {
  Value update = updateOf(options, s, in);
  Value ofParameter = s.squareOf(in.parameter);
  Value ofUpdate = s.squareOf(update);
  return {ofParameter, ofUpdate, s.number(1, "element")};
}

static Results buildAdafactor(const fsdp::CompileOptions &options, Scalars s,
                              Arguments in) {
  Value one = s.number(1, "one");
  Value eps2 = s.number(options.eps(), "eps");
  Value threshold = s.number(options.clipThreshold, "d");
  // The largest relative step shrinks with the root of the step's number.
  Value shrinking = s.div(one, s.sqrt(in.step));
  Value relative = s.min(in.lr, shrinking);
  // Root mean squares: roots of the sums over the root of the number of
  // elements.
  Value root = s.sqrt(in.sums[2]);
  Value ofParameter = s.div(s.sqrt(in.sums[0]), root);
  // eps2 keeps a parameter of zeros from never moving.
  Value rate = s.mul(s.max(eps2, ofParameter), relative);
  Value ofUpdate = s.div(s.sqrt(in.sums[1]), s.mul(root, threshold));
  Value limited = s.div(rate, s.max(one, ofUpdate));

  Value update = updateOf(options, s, in);
  in.decayParameter(s, one);
  Value change = s.mul(s.toElement(s.neg(limited)), update);
  return {s.add(in.parameter, change)};
}

ArrayRef<Program> factoredPrograms() {
  static constexpr Program programs[] = {
      {"adafactor", buildAdafactor, buildAdafactorSums}};
  return programs;
}

} // namespace fsdpc::passes
