// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Interprets the programs that compute the weight of a microbatch in a mean
// over targets from its samples (LossWeight of the manifest). In f64, so counts
// are exact, and in the order of elements, so the result has the same bits
// everywhere.
#pragma once

#include "runtime/abi/manifest.h"

#include <string>
#include <vector>

namespace fsdpc::runtime {

/// Runs one program. Not safe for concurrent use: it keeps the values of all
/// steps, so that a run allocates nothing.
class WeightInterpreter {
public:
  /// Checks that every step has what its op needs. `program` must outlive the
  /// interpreter.
  Status open(const WeightProgram &program);

  /// Returns the elements of each input, which the caller fills before `run`,
  /// with the input's name.
  struct Value {
    std::string name;
    std::vector<double> *elements;
  };
  std::vector<Value> inputs();

  /// Returns the last step's number.
  double run();

private:
  Status check(size_t number) const;
  void compute(size_t number);
  void computeElements(size_t number, double (*unary)(double));
  void computeElements(size_t number, double (*binary)(double, double));
  /// The functions of runtime/abi/weight_ops.h. Each computes a step's value.
  void keep(size_t) {} ///< filled before the run
  void count(size_t number);
  void cast(size_t number);
  void compare(size_t number);
  void select(size_t number);
  void copy(size_t number);
  void move(size_t number);
  void broadcast(size_t number);
  void transpose(size_t number);
  void concatenate(size_t number);
  void reduce(size_t number);
  void takeAlongAxis(size_t number);
  void lookUp(size_t number);

  const std::vector<double> &operand(size_t number, size_t which) const {
    return values[size_t(program->steps[number].operands[which])];
  }
  const std::vector<int64_t> &shapeOf(size_t number, size_t which) const {
    return program->steps[size_t(program->steps[number].operands[which])].shape;
  }

  const WeightProgram *program = nullptr;
  std::vector<std::vector<double>> values; ///< per step
};

} // namespace fsdpc::runtime
