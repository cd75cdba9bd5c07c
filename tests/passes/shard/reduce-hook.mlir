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
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @root
  fsdp.unit @root
  func.func @microbatch(%x: tensor<16xf32>) {
    %a = fsdp.load @w {fsdp.unit = @root} : tensor<4x4xf32>
    %0 = nn.matmul %a, %a {fsdp.unit = @root, fsdp.backward} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.gradient @w, %0 {fsdp.unit = @root} : tensor<4x4xf32>
    return
  }
}

// -----

// The largest element of a mask says whether any was replaced; the report does not
// stand between a gradient and its pack. What divides is taken back by the update.
// CHECK-LABEL: @zeroed
// CHECK: %[[G:.*]] = nn.neg
// CHECK: %[[SIZE:.*]] = nn.abs %[[G]] {{.*}}fsdp.hook = 0
// CHECK: %[[FINITE:.*]] = nn.cmp lt %[[SIZE]], %{{.*}} {{.*}}fsdp.hook = 0
// CHECK: %[[MASK:.*]] = nn.select %[[FINITE]]
// CHECK: %[[ANY:.*]] = nn.reduce max %[[MASK]] [0]
// CHECK: %[[SCALAR:.*]] = nn.reshape %[[ANY]]
// CHECK: fsdp.report_zeroed %[[SCALAR]] {fsdp.backward, fsdp.hook = 0 : i64, fsdp.unit = @root} : tensor<f32>
// CHECK: %[[ZEROED:.*]] = nn.select %[[FINITE]], %[[G]]
// CHECK: %[[QUARTER:.*]] = nn.constant {{.*}}fsdp.hook = 1{{.*}} dense<2.500000e-01>
// CHECK: %[[DIVIDED:.*]] = nn.mul %[[ZEROED]], %[[QUARTER]] {{.*}}fsdp.hook = 1
// CHECK: %[[WEIGHT:.*]] = fsdp.microbatch_weight {{.*}}fsdp.hook = 2
// CHECK: %[[WEIGHTS:.*]] = nn.broadcast
// CHECK: %[[MEAN:.*]] = nn.mul %[[DIVIDED]], %[[WEIGHTS]] {{.*}}fsdp.hook = 2
// CHECK: fsdp.pack @root.flat(%[[MEAN]])
module @zeroed attributes {fsdp.options = {"reduce-hook" = ["zero-nonfinite", "predivide=4", "average=before", "average=after"]}} {
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

// A factor that the update takes back is not rounded to 16 bits.
// CHECK-LABEL: @divided
// CHECK: %[[G:.*]] = nn.neg %{{.*}} : tensor<16xbf16>
// CHECK: %[[THIRD:.*]] = nn.constant {{.*}} dense<0.333333343> : tensor<16xf32>
// CHECK: %[[WIDE:.*]] = nn.cast %[[G]] {{.*}} -> tensor<16xf32>
// CHECK: %[[DIVIDED:.*]] = nn.mul %[[WIDE]], %[[THIRD]] {{.*}} : tensor<16xf32>
// CHECK: %[[NARROW:.*]] = nn.cast %[[DIVIDED]] {{.*}} -> tensor<16xbf16>
// CHECK: fsdp.pack @root.flat(%[[NARROW]])
module @divided attributes {fsdp.options = {"reduce-hook" = ["predivide=3"], "param-dtype" = "bf16"}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @root
  fsdp.unit @root
  func.func @microbatch(%x: tensor<16xf32>) {
    %a = fsdp.load @w {fsdp.unit = @root} : tensor<16xf32>
    %0 = nn.neg %a {fsdp.unit = @root, fsdp.backward} : tensor<16xf32>
    fsdp.gradient @w, %0 {fsdp.unit = @root} : tensor<16xf32>
    return
  }
}

// -----

// Six elements are two blocks of four, the last one filled with zeros.
// CHECK-LABEL: @quantized
// CHECK: %[[PADDED:.*]] = nn.pad %{{.*}} [0] by [1] {{.*}} -> tensor<8xf32>
// CHECK: %[[BLOCKS:.*]] = nn.reshape %[[PADDED]] {{.*}} -> tensor<2x4xf32>
// CHECK: %[[LARGEST:.*]] = nn.reduce max %{{.*}} [1] {{.*}} -> tensor<2x1xf32>
// CHECK: nn.div %[[BLOCKS]]
// CHECK: nn.round
// CHECK: nn.slice %{{.*}} -> tensor<6xf32>
module @quantized attributes {fsdp.options = {"reduce-hook" = ["quantize=i8,block=4"]}} {
  fsdp.parameter @w : tensor<2x3xf32> trainable unit @root
  fsdp.unit @root
  func.func @microbatch(%x: tensor<2x3xf32>) {
    %a = fsdp.load @w {fsdp.unit = @root} : tensor<2x3xf32>
    %0 = nn.neg %a {fsdp.unit = @root} : tensor<2x3xf32>
    fsdp.gradient @w, %0 {fsdp.unit = @root} : tensor<2x3xf32>
    return
  }
}

// -----

// A function's ops take the gradient's shape.
// CHECK-LABEL: @written
// CHECK: %[[G:.*]] = nn.neg
// CHECK: %[[HALF:.*]] = nn.constant {{.*}}fsdp.hook = 0{{.*}} dense<5.000000e-01> : tensor<16xf32>
// CHECK: %[[SMALL:.*]] = nn.mul %[[G]], %[[HALF]] {{.*}} : tensor<16xf32>
// CHECK: fsdp.pack @root.flat(%[[SMALL]])
module @written attributes {fsdp.options = {"reduce-hook" = [["hooks.mlir:@halved",
    "func.func @halved(%g: tensor<1xf32>) -> tensor<1xf32> {\0A %h = nn.constant dense<0.5> : tensor<1xf32>\0A %s = nn.mul %g, %h : tensor<1xf32>\0A return %s : tensor<1xf32>\0A}"]]}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @root
  fsdp.unit @root
  func.func @microbatch(%x: tensor<16xf32>) {
    %a = fsdp.load @w {fsdp.unit = @root} : tensor<16xf32>
    %0 = nn.neg %a {fsdp.unit = @root} : tensor<16xf32>
    fsdp.gradient @w, %0 {fsdp.unit = @root} : tensor<16xf32>
    return
  }
}
