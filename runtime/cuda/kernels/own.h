// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The list of the runtime's own kernels. A kernel is a struct of arguments and
// a function `body` for it; its number is its place in the list.
#pragma once

#include "runtime/cuda/kernels/factors.h"
#include "runtime/cuda/kernels/mark.h"
#include "runtime/cuda/kernels/matrices.h"
#include "runtime/cuda/kernels/norm.h"
#include "runtime/cuda/kernels/one_bit.h"
#include "runtime/cuda/kernels/plain.h"
#include "runtime/cuda/kernels/pooling.h"
#include "runtime/cuda/kernels/power_sgd.h"
#include "runtime/cuda/kernels/report.h"
#include "runtime/cuda/kernels/selection.h"
#include "runtime/cuda/kernels/softmax.h"
#include "runtime/cuda/kernels/sum_ranks.h"

#include <array>
#include <type_traits>

namespace fsdpc::runtime {

/// A list of kernels; numberOf gives a kernel's place at compile time.
template <typename... Arguments> struct KernelList {
  static constexpr int count = sizeof...(Arguments);
  /// -1 for a struct that is not in the list.
  template <typename Wanted> static constexpr int numberOf() {
    int number = 0, found = -1;
    ((std::is_same_v<Wanted, Arguments> ? found = number++ : number++), ...);
    return found;
  }
};

/// The order is that of the numbers; a new kernel goes to the end.
using OwnKernels = KernelList<
    Cast, SumRanks, SumDoubles, SumSquareSegments, SumSquares, Clip, ReportLoss,
    UpdateStatistics, SoftmaxRows, SoftmaxGradRows, PoolingCells, PlainProduct,
    FinishProduct, SumRows, PlainConvolution, StoreRows, Mark, TakeNumbers,
    KeepBuffers, SumGroups, SumMembers, RoundSums, SumFactors, UpdateFactors,
    ScaleRows, MultiplyFactors, MomentumUpdates, PlaceUpdates, MatrixSquares,
    NormalizeMatrix, CombineMatrices, ScaleMatrix, ToBlocks, FromBlocks,
    CountDigits, PickDigit, CountChosen, CountBefore, TakeChosen, AddChosen,
    AddValues, Orthonormalise, MultiplyRight, MultiplyLeft, SpreadFactors,
    CountZeroed, SendSigns, SendScales, AddSigns>;

/// A kernel on the host: runs one thread of one block.
using OwnHostKernel = void (*)(const Grid &grid, const void *arguments);

template <typename T> using OwnTable = std::array<T, OwnKernels::count>;

/// Tables by number: the addresses of the __global__ functions, and the bodies
/// compiled for the host.
extern const OwnTable<const void *> ownKernels;
extern const OwnTable<OwnHostKernel> ownHostKernels;

} // namespace fsdpc::runtime
