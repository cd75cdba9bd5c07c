// A block of rows that are added up is a block of threads on a GPU. There are
// about 512 of them, so that its multiprocessors have work.
// RUN: fsdpc-opt %s --outline-kernels --split-input-file | FileCheck %s

// CHECK-LABEL: func.func private @{{.*}}(%{{.*}}: tensor<8192x1600xf32>)
// CHECK: nn.reshape {{.*}} -> tensor<512x16x1600xf32>
module attributes {fsdp.options = {target = "cuda"}} {
  func.func @microbatch(%x: tensor<8192x1600xf32> {fsdp.input = "x"}) {
    %0 = nn.reduce sum %x [0] : tensor<8192x1600xf32> -> tensor<1x1600xf32>
    return
  }
}

// -----

// Enough rows keep the host's blocks of 64, and so does the emulation.
// CHECK-LABEL: func.func private @{{.*}}(%{{.*}}: tensor<32768x1600xf32>)
// CHECK: nn.reshape {{.*}} -> tensor<512x64x1600xf32>
module attributes {fsdp.options = {target = "cuda"}} {
  func.func @microbatch(%x: tensor<32768x1600xf32> {fsdp.input = "x"}) {
    %0 = nn.reduce sum %x [0] : tensor<32768x1600xf32> -> tensor<1x1600xf32>
    return
  }
}

// -----

// CHECK-LABEL: func.func private @{{.*}}(%{{.*}}: tensor<8192x1600xf32>)
// CHECK: nn.reshape {{.*}} -> tensor<128x64x1600xf32>
module attributes {fsdp.options = {target = "cuda-emulation"}} {
  func.func @microbatch(%x: tensor<8192x1600xf32> {fsdp.input = "x"}) {
    %0 = nn.reduce sum %x [0] : tensor<8192x1600xf32> -> tensor<1x1600xf32>
    return
  }
}

// -----

// 961 has no divisor from 16 down that suits, but 31 above.
// CHECK-LABEL: func.func private @{{.*}}(%{{.*}}: tensor<961x1600xf32>)
// CHECK: nn.reshape {{.*}} -> tensor<31x31x1600xf32>
module attributes {fsdp.options = {target = "cuda"}} {
  func.func @microbatch(%x: tensor<961x1600xf32> {fsdp.input = "x"}) {
    %0 = nn.reduce sum %x [0] : tensor<961x1600xf32> -> tensor<1x1600xf32>
    return
  }
}
