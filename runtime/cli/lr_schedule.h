// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// --lr-schedule: the learning rate as a function of the step alone, so that a
// run has no schedule state to save. The formulas are the closed forms of
// torch.optim.lr_scheduler where it has them; lengths that torch asks for
// follow from --steps here.
//
//   constant
//   linear, cosine          fall to `min` at the end (Loshchilov and Hutter,
//                           SGDR, 2017)
//   polynomial[,power=1]    min + (rate - min) · (1 - t / T)^power
//   step,size=S[,gamma=0.1] rate · gamma^(t / S), rounded down
//   exponential,gamma=G     rate · G^t
//   wsd[,decay=D]           constant, then linear to `min` over the last D
//                           steps (default a tenth of --steps; Hu et al.,
//                           MiniCPM, 2024: warm-up, stable, decay)
//   onecycle[,start=0.3][,div=25][,final=1e4][,anneal=cos]
//                           from rate / div up to the rate over the fraction
//                           `start` of the steps, then down to rate / div /
//                           final (Smith and Topin, Super-Convergence, 2019)
//   file:FILE               lines `step rate`; a rate holds until the next line
//
// All but the last two rise linearly over `warmup` steps first. t counts the
// steps since then, and T is their number.
#pragma once

#include "runtime/support/status.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fsdpc::runtime {

struct LrSchedule {
  enum Kind {
    constant,
    linear,
    cosine,
    polynomial,
    step,
    exponential,
    wsd,
    onecycle,
    file
  } kind = constant;
  int64_t warmup = 0;    ///< steps over which the rate rises linearly
  double minimum = 0;    ///< where the rate ends
  double power = 1;      ///< polynomial
  int64_t size = 0;      ///< step: steps between two falls
  double gamma = 0.1;    ///< step, exponential: the factor of a fall
  int64_t decay = 0;     ///< wsd: steps of the decay; 0: a tenth of all
  double start = 0.3;    ///< onecycle: the part of the steps that rises
  double division = 25;  ///< onecycle: the rate over the first one
  double final = 1e4;    ///< onecycle: the first rate over the last one
  bool straight = false; ///< onecycle: linear instead of cosine
  /// file: steps in rising order, the first of them 0, and their rates.
  std::vector<std::pair<int64_t, double>> rates;

  /// Returns the rate of step `at`, counted from 0, in a run of `steps`. With a
  /// warmup of W, step 0 has rate/W and step W the full rate. A decay to
  /// `minimum` would reach it at step `steps`, one past the last; onecycle
  /// reaches its end at the last step, as in torch.
  double at(int64_t at, int64_t steps, double rate) const;
};

/// Parses "cosine,warmup=100,min=1e-5", and reads the file of "file:FILE".
Result<LrSchedule> parseSchedule(const std::string &text);

} // namespace fsdpc::runtime
