// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All of the nn dialect, for tools that read one file. The files include only
// NNBase.td, so that the C++ of one does not depend on the others.
include "compiler/dialects/nn/NNKernelPlan.td"
include "compiler/dialects/nn/NNElementwise.td"
include "compiler/dialects/nn/NNShape.td"
include "compiler/dialects/nn/NNComposite.td"
include "compiler/dialects/nn/NNNorms.td"
include "compiler/dialects/nn/NNLosses.td"
include "compiler/dialects/nn/NNLibrary.td"
include "compiler/dialects/nn/NNGradients.td"
