// The text of kernel plans, and the numbers that none can have.
// RUN: fsdpc-opt %s --verify-diagnostics --split-input-file | fsdpc-opt --split-input-file | FileCheck %s

// Fields with their usual values are not printed.
// CHECK: @all
// CHECK-SAME: a = #nn.kernel_plan<row rows 40 stages[2 * 24, 48, 1] extent 2 grain 1 rows_per_block 20 stack 256>
// CHECK-SAME: b = #nn.kernel_plan<map rows 8 stages[2048] extent 256 grain 4 blocks 32 block_lanes 64 rows_inside true>
// CHECK-SAME: c = #nn.kernel_plan<column rows 1 stages[9 * 48] extent 1 grain 1 block_lanes 64>
func.func private @all() attributes {
  a = #nn.kernel_plan<row rows 40 stages[2 * 24, 1 * 48, 1] extent 2 grain 1 rows_per_block 20 stack 256>,
  b = #nn.kernel_plan<map rows 8 stages[2048] extent 256 grain 4 blocks 32 block_lanes 64 rows_inside true>,
  c = #nn.kernel_plan<column rows 1 stages[9 * 48] extent 1 grain 1 block_lanes 64>}

// -----

// expected-error@+1 {{'stages' of a kernel plan is 0; it must be at least 1}}
func.func private @lanes() attributes {a = #nn.kernel_plan<map rows 1 stages[0] extent 1 grain 1>}

// -----

// expected-error@+1 {{'grain' of a kernel plan is 0; it must be at least 1}}
func.func private @grain() attributes {a = #nn.kernel_plan<map rows 1 stages[8] extent 1 grain 0>}

// -----

// expected-error@+2 {{expected ::fsdpc::nn::KernelTemplate to be one of: map, row, column, embedding_grad}}
// expected-error@+1 {{failed to parse NN_KernelPlan parameter 'kernelTemplate'}}
func.func private @kind() attributes {a = #nn.kernel_plan<tree rows 1 stages[8] extent 1 grain 0>}
