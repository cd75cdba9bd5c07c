// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All ops of the nn dialect, for what registers or defines them. Other files
// include the headers of the ops that they name, so that a change of an op
// compiles few of them again (tools/rebuild-count.py).
#pragma once

#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/GradientOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/NormOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

// The functions that register the shards of ops.
#include "compiler/dialects/nn/NNOps.h.inc"
