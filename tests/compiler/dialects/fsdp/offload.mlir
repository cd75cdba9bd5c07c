// RUN: fsdpc-opt %s | fsdpc-opt | FileCheck %s

// CHECK-LABEL: func.func @whole
func.func @whole(%x: tensor<4x8xf32>, %y: tensor<8xbf16>) {
  // CHECK: %[[H:.*]] = fsdp.offload %{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8xbf16>
  %held = fsdp.offload %x, %y : tensor<4x8xf32>, tensor<8xbf16>
  // CHECK: %[[A:.*]]:2 = fsdp.fetch %[[H]] : tensor<4x8xf32>, tensor<8xbf16>
  %a, %b = fsdp.fetch %held : tensor<4x8xf32>, tensor<8xbf16>
  // CHECK: fsdp.free %[[A]]#0 : tensor<4x8xf32>
  fsdp.free %a : tensor<4x8xf32>
  return
}

// CHECK-LABEL: func.func @split
func.func @split(%x: tensor<4x8xf32>, %y: tensor<8xbf16>) {
  // CHECK: %[[S:.*]] = fsdp.offload_start %{{.*}}, %{{.*}} {places = array<i64: 0, 128>} : tensor<4x8xf32>, tensor<8xbf16>
  %s = fsdp.offload_start %x, %y {places = array<i64: 0, 128>} : tensor<4x8xf32>, tensor<8xbf16>
  // CHECK: %[[H:.*]] = fsdp.offload_wait %[[S]]
  %held = fsdp.offload_wait %s
  // CHECK: %[[T:.*]] = fsdp.fetch_start %[[H]]
  %t = fsdp.fetch_start %held
  // CHECK: %[[A:.*]]:2 = fsdp.fetch_wait %[[T]] : tensor<4x8xf32>, tensor<8xbf16>
  %a, %b = fsdp.fetch_wait %t : tensor<4x8xf32>, tensor<8xbf16>
  // CHECK: fsdp.free %[[A]]#1 : tensor<8xbf16>
  fsdp.free %b : tensor<8xbf16>
  return
}
