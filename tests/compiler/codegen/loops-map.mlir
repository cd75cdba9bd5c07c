// The map template as loops for a processor with 8 or 16 f32 per register.
// RUN: fsdpc-opt %s --plan-kernels --emit-kernels | FileCheck %s
// RUN: fsdpc-opt %s --plan-kernels --emit-kernels=lanes=16 | FileCheck %s --check-prefix=WIDE
// RUN: fsdpc-opt %s --plan-kernels --emit-kernels --expand-math --lower-kernels | FileCheck %s --check-prefix=LOWERED

// The steps [begin, end) of the range around one loop of whole vectors: 64
// lanes leave no tail.
// CHECK: func.func @neg(%[[BEGIN:.*]]: i64, %[[END:.*]]: i64, %{{.*}}: !llvm.ptr)
// CHECK: scf.for %{{.*}} = %[[BEGIN]] to %[[END]]
// CHECK: scf.for
// CHECK: llvm.load {{.*}} -> vector<8xf32>
// CHECK: arith.negf {{.*}} : vector<8xf32>
// CHECK: llvm.store {{.*}} : vector<8xf32>
// CHECK-NOT: llvm.load
// CHECK: return
//
// WIDE: func.func @neg
// WIDE: arith.negf {{.*}} : vector<16xf32>
//
// LOWERED: llvm.func @neg(%{{.*}}: i64, %{{.*}}: i64, %{{.*}}: !llvm.ptr)
// LOWERED-NOT: scf.for
// LOWERED: llvm.fneg {{.*}} : vector<8xf32>
func.func private @neg(%x: tensor<64xf32>) -> tensor<64xf32> attributes {nn.kernel} {
  %y = nn.neg %x : tensor<64xf32>
  return %y : tensor<64xf32>
}

// 67 lanes: whole vectors, then single elements.
// CHECK: func.func @tail
// CHECK: arith.negf {{.*}} : vector<8xf32>
// CHECK: arith.negf {{.*}} : f32
// CHECK: return
func.func private @tail(%x: tensor<67xf32>) -> tensor<67xf32> attributes {nn.kernel} {
  %y = nn.neg %x : tensor<67xf32>
  return %y : tensor<67xf32>
}
