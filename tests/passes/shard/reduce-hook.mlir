// RUN: fsdpc-opt %s --shard-parameters --mixed-precision --split-input-file | FileCheck %s

// Hooks stand between a gradient and its pack, in the order given, as ops of the
// unit's backward with the number of their hook.
// CHECK-LABEL: @in_order
// CHECK: %[[G:.*]] = nn.neg
// CHECK: %[[LOW:.*]] = nn.constant {{.*}}fsdp.hook = 0{{.*}} dense<-5.000000e-01>
// CHECK: %[[ABOVE:.*]] = nn.maximum %[[G]], %[[LOW]] {fsdp.backward, fsdp.hook = 0 : i64, fsdp.unit = @root}
// CHECK: %[[HIGH:.*]] = nn.constant {{.*}} dense<5.000000e-01>
// CHECK: %[[CLIPPED:.*]] = nn.minimum %[[ABOVE]], %[[HIGH]] {{.*}}fsdp.hook = 0
// CHECK: %[[NARROW:.*]] = nn.cast %[[CLIPPED]] {{.*}}fsdp.hook = 1{{.*}} -> tensor<16xbf16>
// CHECK: %[[WIDE:.*]] = nn.cast %[[NARROW]] {{.*}}fsdp.hook = 1{{.*}} -> tensor<16xf32>
// CHECK: fsdp.pack @root.flat(%[[WIDE]])
module @in_order attributes {fsdp.options = {"reduce-hook" = ["clip-value=0.5", "cast=bf16"]}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @root
  fsdp.unit @root
  func.func @microbatch(%x: tensor<16xf32>) {
    %a = fsdp.load @w {fsdp.unit = @root} : tensor<16xf32>
    %0 = nn.neg %a {fsdp.unit = @root} : tensor<16xf32>
    fsdp.gradient @w, %0 {fsdp.unit = @root} : tensor<16xf32>
    return
  }
}

// -----

// A cast to the type that the model computes in has nothing to round where the
// gradient has this type already.
// CHECK-LABEL: @computed
// CHECK-NOT: fsdp.hook
// CHECK: fsdp.pack
module @computed attributes {fsdp.options = {"reduce-hook" = ["cast=bf16"], "param-dtype" = "bf16"}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @root
  fsdp.unit @root
  func.func @microbatch(%x: tensor<16xf32>) {
    %a = fsdp.load @w {fsdp.unit = @root} : tensor<16xf32>
    %0 = nn.neg %a {fsdp.unit = @root, fsdp.backward} : tensor<16xf32>
    fsdp.gradient @w, %0 {fsdp.unit = @root} : tensor<16xf32>
    return
  }
}
