// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tensor types that operands and results of ops have: ranked tensors of
// static shape.
#ifndef FSDPC_NN_TYPES
#define FSDPC_NN_TYPES

include "mlir/IR/OpBase.td"

def NN_Float : AnyTypeOf<[F32, BF16, F16, F64]>;
def NN_Integer : AnyTypeOf<[I64, I32, I1, I8, UI8]>;
def NN_Element : AnyTypeOf<[F32, BF16, F16, F64, I64, I32, I1, I8, UI8]>;

def NN_Tensor : StaticShapeTensorOf<[NN_Element]>;
def NN_FloatTensor : StaticShapeTensorOf<[NN_Float]>;
def NN_IntTensor : StaticShapeTensorOf<[NN_Integer]>;
def NN_BoolTensor : StaticShapeTensorOf<[I1]>;
// Statistics and losses: f32, or f64 in tests of the adjoints.
def NN_StatTensor : StaticShapeTensorOf<[F32, F64]>;

#endif
