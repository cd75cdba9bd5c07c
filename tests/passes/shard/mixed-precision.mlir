// RUN: fsdpc-opt %s --mixed-precision --split-input-file | FileCheck %s

// Weights and the values combined with them become bf16. A float input is cast
// at its use, in the forward and in the backward. Statistics and the loss stay
// f32.
module attributes {fsdp.options = {"param-dtype" = "bf16"}} {
  fsdp.parameter @w : tensor<8x8xf32> trainable unit @u
  fsdp.unit @u
  // CHECK: fsdp.layout @u.flat {{.*}} : bf16
  fsdp.layout @u.flat of @u trainable elements 64 : f32 states 2 {
    members = [#fsdp.member<@w[0, 64] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // CHECK-LABEL: func.func @microbatch
  // CHECK-SAME: %[[X:.*]]: tensor<4x8xf32>, %[[Y:.*]]: tensor<4xi64>
  func.func @microbatch(%x: tensor<4x8xf32>, %y: tensor<4xi64>) {
    // CHECK: %[[F:.*]] = fsdp.flat @u.flat : tensor<64xbf16>
    %f = fsdp.flat @u.flat : tensor<64xf32>
    // CHECK: %[[W:.*]] = fsdp.view %[[F]][@w at 0] : tensor<64xbf16> -> tensor<8x8xbf16>
    %w = fsdp.view %f[@w at 0] : tensor<64xf32> -> tensor<8x8xf32>
    // CHECK: %[[XC:.*]] = nn.cast %[[X]] {fsdp.unit = @u} : tensor<4x8xf32> -> tensor<4x8xbf16>
    // CHECK: %[[H:.*]] = nn.matmul %[[XC]], %[[W]] {fsdp.unit = @u} : {{.*}} -> tensor<4x8xbf16>
    %h = nn.matmul %x, %w {fsdp.unit = @u} : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
    // CHECK: nn.rms_norm %[[H]] {{.*}} -> tensor<4x8xbf16>, tensor<4xf32>
    %n, %rstd = nn.rms_norm %h {epsilon = 1.0e-5 : f64} : tensor<4x8xf32> -> tensor<4x8xf32>, tensor<4xf32>
    // CHECK: nn.cross_entropy {{.*}} -> tensor<f32>, tensor<4xf32>, tensor<f32>
    %loss, %lse, %valid = nn.cross_entropy mean %n, %y : tensor<4x8xf32>, tensor<4xi64> -> tensor<f32>, tensor<4xf32>, tensor<f32>
    fsdp.report_loss %loss : tensor<f32>
    %one = nn.constant {fsdp.backward} dense<1.0> : tensor<f32>
    // CHECK: nn.cross_entropy_grad mean %{{.*}} : tensor<f32>, tensor<4x8xbf16>, tensor<4xi64>, tensor<4xf32> -> tensor<4x8xbf16>
    %dn = nn.cross_entropy_grad mean %one, %n, %y, %lse, %valid {fsdp.backward} : tensor<f32>, tensor<4x8xf32>, tensor<4xi64>, tensor<4xf32> -> tensor<4x8xf32>
    // CHECK: nn.rms_norm_grad {{.*}} : tensor<4x8xbf16>, tensor<4xf32> -> tensor<4x8xbf16>
    %dh = nn.rms_norm_grad %dn, %h, %rstd {fsdp.backward} : tensor<4x8xf32>, tensor<4xf32> -> tensor<4x8xf32>
    // CHECK: %[[XB:.*]] = nn.cast %[[X]] {fsdp.backward} : tensor<4x8xf32> -> tensor<4x8xbf16>
    // CHECK: nn.matmul %[[XB]], {{.*}} -> tensor<8x8xbf16>
    %dw = nn.matmul %x, %dh {transpose_a, fsdp.backward} : tensor<4x8xf32>, tensor<4x8xf32> -> tensor<8x8xf32>
    // CHECK: fsdp.pack @u.flat({{.*}}) : (tensor<8x8xbf16>) -> tensor<64xbf16>
    %g = fsdp.pack @u.flat(%dw) : (tensor<8x8xf32>) -> tensor<64xf32>
    // CHECK: fsdp.reduce @u.flat, %{{.*}} : tensor<64xbf16>
    fsdp.reduce @u.flat, %g : tensor<64xf32>
    return
  }
}

// -----

// The squares and the mean that lead only to the loss are f32, with the target
// as given. The gradient is cast where it is combined with a bf16 value.
module attributes {fsdp.options = {"param-dtype" = "bf16"}} {
  fsdp.parameter @w : tensor<1x8xf32> trainable unit @u
  fsdp.unit @u
  fsdp.layout @u.flat of @u trainable elements 8 : f32 states 2 {
    members = [#fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // CHECK-LABEL: func.func @microbatch
  // CHECK-SAME: %[[T:[a-z0-9]+]]: tensor<1x8xf32>
  func.func @microbatch(%t: tensor<1x8xf32>, %i: tensor<1xi64>) {
    %f = fsdp.flat @u.flat : tensor<8xf32>
    %table = fsdp.view %f[@w at 0] : tensor<8xf32> -> tensor<1x8xf32>
    %w = nn.embedding %table, %i : tensor<1x8xf32>, tensor<1xi64> -> tensor<1x8xf32>
    // CHECK: %[[S:.*]] = nn.softmax %{{.*}} : tensor<1x8xbf16>
    %s = nn.softmax %w : tensor<1x8xf32>
    // CHECK: %[[C:.*]] = nn.cast %[[S]] : tensor<1x8xbf16> -> tensor<1x8xf32>
    // CHECK: %[[D:.*]] = nn.sub %[[C]], %[[T]] : tensor<1x8xf32>
    %d = nn.sub %s, %t : tensor<1x8xf32>
    // CHECK: nn.mul %[[D]], %[[D]] : tensor<1x8xf32>
    %q = nn.mul %d, %d : tensor<1x8xf32>
    // CHECK: nn.reduce sum {{.*}} : tensor<1x8xf32> -> tensor<1x1xf32>
    %r = nn.reduce sum %q [0, 1] : tensor<1x8xf32> -> tensor<1x1xf32>
    %loss = nn.reshape %r : tensor<1x1xf32> -> tensor<f32>
    fsdp.report_loss %loss : tensor<f32>
    // CHECK: %[[DS:.*]] = nn.add %[[D]], %[[D]] {fsdp.backward} : tensor<1x8xf32>
    %ds = nn.add %d, %d {fsdp.backward} : tensor<1x8xf32>
    // CHECK: %[[DC:.*]] = nn.cast %[[DS]] {fsdp.backward} : tensor<1x8xf32> -> tensor<1x8xbf16>
    // CHECK: nn.softmax_grad %[[S]], %[[DC]] {fsdp.backward} : tensor<1x8xbf16>
    %dw = nn.softmax_grad %s, %ds {fsdp.backward} : tensor<1x8xf32>
    %dtable = nn.embedding_grad %dw, %i {fsdp.backward} : tensor<1x8xf32>, tensor<1xi64> -> tensor<1x8xf32>
    %g = fsdp.pack @u.flat(%dtable) : (tensor<1x8xf32>) -> tensor<8xf32>
    fsdp.reduce @u.flat, %g : tensor<8xf32>
    return
  }
}

// -----

// Values from integers and constants are f32 until they are combined with bf16.
// Constants are converted; an additive mask of attention is unchanged.
module attributes {fsdp.options = {"param-dtype" = "bf16"}} {
  fsdp.parameter @w : tensor<2x4xf32> unit @u
  fsdp.unit @u
  fsdp.layout @u.frozen of @u elements 8 : f32 states 0 {
    members = [#fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%i: tensor<1x1x2x4xi64>, %ids: tensor<1x1x2xi64>, %mask: tensor<1x1x1x2xf32>) {
    %f = fsdp.flat @u.frozen : tensor<8xf32>
    %table = fsdp.view %f[@w at 0] : tensor<8xf32> -> tensor<2x4xf32>
    %w = nn.embedding %table, %ids : tensor<2x4xf32>, tensor<1x1x2xi64> -> tensor<1x1x2x4xf32>
    // CHECK: nn.cast %{{.*}} : tensor<1x1x2x4xi64> -> tensor<1x1x2x4xf32>
    %a = nn.cast %i : tensor<1x1x2x4xi64> -> tensor<1x1x2x4xf32>
    // CHECK: %[[COS:.*]] = nn.cos %{{.*}} : tensor<1x1x2x4xf32>
    %cos = nn.cos %a : tensor<1x1x2x4xf32>
    // CHECK: %[[CC:.*]] = nn.cast %[[COS]] : tensor<1x1x2x4xf32> -> tensor<1x1x2x4xbf16>
    // CHECK: nn.mul %{{.*}}, %[[CC]] : tensor<1x1x2x4xbf16>
    %q = nn.mul %w, %cos : tensor<1x1x2x4xf32>
    // CHECK: %[[K:.*]] = nn.constant dense<2.000000e+00> : tensor<1x1x2x4xbf16>
    %two = nn.constant dense<2.0> : tensor<1x1x2x4xf32>
    // CHECK: nn.mul %{{.*}}, %[[K]] : tensor<1x1x2x4xbf16>
    %k = nn.mul %q, %two : tensor<1x1x2x4xf32>
    // CHECK: nn.attention {{.*}} mask tensor<1x1x1x2xf32> -> tensor<1x1x2x4xbf16>, tensor<1x1x2xf32>
    %o, %lse = nn.attention %q, %k, %w mask %mask {scale = 1.0 : f64} : tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, tensor<1x1x2x4xf32>, mask tensor<1x1x1x2xf32> -> tensor<1x1x2x4xf32>, tensor<1x1x2xf32>
    return
  }
}

// -----

// The lowest f32 hides scores, and becomes the lowest bf16. Minus infinity
// stays. A broadcast of a constant is converted with it.
module attributes {fsdp.options = {"param-dtype" = "bf16"}} {
  fsdp.parameter @w : tensor<1x8xf32> unit @u
  fsdp.unit @u
  fsdp.layout @u.frozen of @u elements 8 : f32 states 0 {
    members = [#fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%keep: tensor<8xi1>, %row: tensor<i64>) {
    %f = fsdp.flat @u.frozen : tensor<8xf32>
    %table = fsdp.view %f[@w at 0] : tensor<8xf32> -> tensor<1x8xf32>
    %w = nn.embedding %table, %row : tensor<1x8xf32>, tensor<i64> -> tensor<8xf32>
    // CHECK-DAG: nn.constant dense<-3.3{{.*}}e+38> : tensor<bf16>
    // CHECK-NOT: nn.cast
    %number = nn.constant dense<-3.40282347E+38> : tensor<f32>
    %lowest = nn.broadcast %number : tensor<f32> -> tensor<8xf32>
    // CHECK-DAG: nn.constant dense<0xFF80> : tensor<8xbf16>
    %none = nn.constant dense<0xFF800000> : tensor<8xf32>
    %a = nn.select %keep, %w, %lowest : tensor<8xi1>, tensor<8xf32>
    %b = nn.select %keep, %a, %none : tensor<8xi1>, tensor<8xf32>
    return
  }
}

// -----

// A mask that is added to scores chooses between two constants, and may be moved.
// It is chosen in bf16, for the same reason. Readers in f32 keep the one in f32.
module attributes {fsdp.options = {"param-dtype" = "bf16"}} {
  fsdp.parameter @w : tensor<2x8xf32> unit @u
  fsdp.unit @u
  fsdp.layout @u.frozen of @u elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // CHECK-LABEL: func.func @microbatch
  // CHECK-SAME: %[[KEEP:[a-z0-9]+]]: tensor<8xi1>
  func.func @microbatch(%keep: tensor<8xi1>, %ids: tensor<2xi64>) {
    %f = fsdp.flat @u.frozen : tensor<16xf32>
    %table = fsdp.view %f[@w at 0] : tensor<16xf32> -> tensor<2x8xf32>
    %w = nn.embedding %table, %ids : tensor<2x8xf32>, tensor<2xi64> -> tensor<2x8xf32>
    // CHECK-DAG: nn.constant dense<-3.3{{.*}}e+38> : tensor<bf16>
    // CHECK-NOT: nn.cast
    %number = nn.constant dense<-3.40282347E+38> : tensor<f32>
    %lowest = nn.broadcast %number : tensor<f32> -> tensor<8xf32>
    %zero = nn.constant dense<0.0> : tensor<8xf32>
    // CHECK: %[[HALF:.*]] = nn.select %[[KEEP]], %{{.*}}, %{{.*}} {fsdp.unit = @u} : tensor<8xi1>, tensor<8xbf16>
    // CHECK: %[[SINGLE:.*]] = nn.select %[[KEEP]], %{{.*}}, %{{.*}} {fsdp.unit = @u} : tensor<8xi1>, tensor<8xf32>
    %mask = nn.select %keep, %zero, %lowest {fsdp.unit = @u} : tensor<8xi1>, tensor<8xf32>
    // CHECK: %[[ROW:.*]] = nn.reshape %[[HALF]] : tensor<8xbf16> -> tensor<1x8xbf16>
    %row = nn.reshape %mask : tensor<8xf32> -> tensor<1x8xf32>
    // CHECK-NEXT: %[[ROWS:.*]] = nn.broadcast %[[ROW]] : tensor<1x8xbf16> -> tensor<2x8xbf16>
    %rows = nn.broadcast %row : tensor<1x8xf32> -> tensor<2x8xf32>
    // CHECK: nn.add %{{.*}}, %[[ROWS]] : tensor<2x8xbf16>
    %a = nn.add %w, %rows : tensor<2x8xf32>
    // CHECK: nn.exp %[[SINGLE]] : tensor<8xf32>
    %e = nn.exp %mask : tensor<8xf32>
    fsdp.report_output "e" %e : tensor<8xf32>
    return
  }
}

// -----

// A mask that is computed from integers is f32 until it is added to scores. It is
// limited to the finite numbers of bf16 before its cast, which would turn the
// lowest f32 into minus infinity. So it is behind a choice.
module attributes {fsdp.options = {"param-dtype" = "bf16"}} {
  fsdp.parameter @w : tensor<1x8xf32> unit @u
  fsdp.unit @u
  fsdp.layout @u.frozen of @u elements 8 : f32 states 0 {
    members = [#fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // CHECK-LABEL: func.func @microbatch
  // CHECK-SAME: %[[PAD:[a-z0-9]+]]: tensor<8xi64>, %[[KEEP:[a-z0-9]+]]: tensor<8xi1>
  func.func @microbatch(%pad: tensor<8xi64>, %keep: tensor<8xi1>, %row: tensor<i64>) {
    %f = fsdp.flat @u.frozen : tensor<8xf32>
    %table = fsdp.view %f[@w at 0] : tensor<8xf32> -> tensor<1x8xf32>
    %w = nn.embedding %table, %row : tensor<1x8xf32>, tensor<i64> -> tensor<8xf32>
    %lowest = nn.constant dense<-3.40282347E+38> : tensor<8xf32>
    %one = nn.constant dense<1.0> : tensor<8xf32>
    // CHECK: %[[KEPT:.*]] = nn.cast %[[PAD]] : tensor<8xi64> -> tensor<8xf32>
    %kept = nn.cast %pad : tensor<8xi64> -> tensor<8xf32>
    // CHECK-NEXT: %[[HIDDEN:.*]] = nn.sub %{{.*}}, %[[KEPT]] : tensor<8xf32>
    %hidden = nn.sub %one, %kept : tensor<8xf32>
    // CHECK-NEXT: %[[MASK:.*]] = nn.mul %[[HIDDEN]], %{{.*}} : tensor<8xf32>
    %mask = nn.mul %hidden, %lowest : tensor<8xf32>
    // CHECK-NEXT: %[[MOST:.*]] = nn.constant dense<3.38{{.*}}E+38> : tensor<8xf32>
    // CHECK-NEXT: %[[BELOW:.*]] = nn.minimum %[[MASK]], %[[MOST]] : tensor<8xf32>
    // CHECK-NEXT: %[[LEAST:.*]] = nn.constant dense<-3.38{{.*}}E+38> : tensor<8xf32>
    // CHECK-NEXT: %[[LIMITED:.*]] = nn.maximum %[[BELOW]], %[[LEAST]] : tensor<8xf32>
    // CHECK-NEXT: %[[HALF:.*]] = nn.cast %[[LIMITED]] : tensor<8xf32> -> tensor<8xbf16>
    // CHECK-NEXT: nn.add %{{.*}}, %[[HALF]] : tensor<8xbf16>
    %a = nn.add %w, %mask : tensor<8xf32>
    // CHECK-NEXT: %[[CHOSEN:.*]] = nn.select %[[KEEP]], %[[MASK]], %{{.*}} : tensor<8xi1>, tensor<8xf32>
    %chosen = nn.select %keep, %mask, %lowest : tensor<8xi1>, tensor<8xf32>
    // CHECK: %[[LIMITED:.*]] = nn.maximum
    // CHECK-NEXT: %[[HALF:.*]] = nn.cast %[[LIMITED]] : tensor<8xf32> -> tensor<8xbf16>
    // CHECK-NEXT: nn.add %{{.*}}, %[[HALF]] : tensor<8xbf16>
    %b = nn.add %w, %chosen : tensor<8xf32>
    // CHECK-NEXT: return
    return
  }
}

// -----

// In f32 nothing changes.
// CHECK-LABEL: func.func @microbatch
// CHECK-NEXT: nn.neg %{{.*}} : tensor<8xf32>
func.func @microbatch(%x: tensor<8xf32>) {
  %y = nn.neg %x : tensor<8xf32>
  return
}

// -----

// f16 in place of bf16. The scale of the loss stays f32 until it meets f16.
module attributes {fsdp.options = {"param-dtype" = "f16"}} {
  fsdp.parameter @w : tensor<1x8xf32> trainable unit @u
  fsdp.unit @u
  // CHECK: fsdp.layout @u.flat {{.*}} : f16
  fsdp.layout @u.flat of @u trainable elements 8 : f32 states 2 {
    members = [#fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%y: tensor<1xi64>) {
    // CHECK: %[[F:.*]] = fsdp.flat @u.flat : tensor<8xf16>
    %f = fsdp.flat @u.flat : tensor<8xf32>
    // CHECK: %[[W:.*]] = fsdp.view %[[F]][@w at 0] : tensor<8xf16> -> tensor<1x8xf16>
    %w = fsdp.view %f[@w at 0] : tensor<8xf32> -> tensor<1x8xf32>
    // CHECK: %[[S:.*]] = fsdp.loss_scale : tensor<f32>
    %s = fsdp.loss_scale : tensor<f32>
    %loss, %lse, %valid = nn.cross_entropy mean %w, %y : tensor<1x8xf32>, tensor<1xi64> -> tensor<f32>, tensor<1xf32>, tensor<f32>
    fsdp.report_loss %loss : tensor<f32>
    // CHECK: %[[D:.*]] = nn.cross_entropy_grad mean %[[S]], %[[W]], {{.*}} : tensor<f32>, tensor<1x8xf16>, tensor<1xi64>, tensor<1xf32> -> tensor<1x8xf16>
    %d = nn.cross_entropy_grad mean %s, %w, %y, %lse, %valid {fsdp.backward} : tensor<f32>, tensor<1x8xf32>, tensor<1xi64>, tensor<1xf32> -> tensor<1x8xf32>
    %g = fsdp.pack @u.flat(%d) : (tensor<1x8xf32>) -> tensor<8xf32>
    // CHECK: fsdp.reduce @u.flat, %{{.*}} : tensor<8xf16>
    fsdp.reduce @u.flat, %g : tensor<8xf32>
    return
  }
}

// -----

// A prediction is written in f32, and what leads to a metric alone is computed in it.
module attributes {fsdp.options = {"param-dtype" = "bf16"}} {
  fsdp.parameter @w : tensor<8x8xf32> trainable unit @u
  fsdp.unit @u
  fsdp.layout @u.flat of @u trainable elements 64 : f32 states 2 {
    members = [#fsdp.member<@w[0, 64] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // CHECK-LABEL: func.func @evaluate
  func.func @evaluate(%x: tensor<4x8xf32>) {
    %f = fsdp.flat @u.flat : tensor<64xf32>
    %w = fsdp.view %f[@w at 0] : tensor<64xf32> -> tensor<8x8xf32>
    // CHECK: %[[H:.*]] = nn.matmul {{.*}} -> tensor<4x8xbf16>
    %h = nn.matmul %x, %w : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
    // CHECK: nn.reduce sum %{{.*}} [0, 1] : tensor<4x8xf32> -> tensor<1x1xf32>
    %s = nn.reduce sum %h [0, 1] : tensor<4x8xf32> -> tensor<1x1xf32>
    %m = nn.reshape %s : tensor<1x1xf32> -> tensor<f32>
    // CHECK: fsdp.report_output "sum" %{{.*}} : tensor<f32>
    fsdp.report_output "sum" %m : tensor<f32>
    // CHECK: fsdp.report_output "h" %{{.*}} : tensor<4x8xf32>
    fsdp.report_output "h" %h : tensor<4x8xf32>
    return
  }
  // CHECK-LABEL: func.func @microbatch()
  func.func @microbatch() { return }
}

// -----

// A comparison with a draw is f32, since a draw below 1 may be 1 in bf16.
module attributes {fsdp.options = {"param-dtype" = "bf16"}} {
  fsdp.parameter @w : tensor<4x8xf32> unit @u
  fsdp.unit @u
  fsdp.layout @u.frozen of @u elements 32 : f32 states 0 {
    members = [#fsdp.member<@w[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%ids: tensor<4xi64>) {
    %f = fsdp.flat @u.frozen : tensor<32xf32>
    %table = fsdp.view %f[@w at 0] : tensor<32xf32> -> tensor<4x8xf32>
    %x = nn.embedding %table, %ids : tensor<4x8xf32>, tensor<4xi64> -> tensor<4x8xf32>
    %keys = fsdp.random : tensor<4xi32>
    %p = nn.sigmoid %x : tensor<4x8xf32>
    // CHECK: %[[U:.*]] = nn.uniform
    %u = nn.uniform %keys {op = 0} : tensor<4xi32> -> tensor<4x8xf32>
    // CHECK: %[[P:.*]] = nn.cast %{{.*}} : tensor<4x8xbf16> -> tensor<4x8xf32>
    // CHECK: nn.cmp lt %[[U]], %[[P]] : tensor<4x8xf32>
    %b = nn.cmp lt %u, %p : tensor<4x8xf32> -> tensor<4x8xi1>
    %c = nn.cast %b : tensor<4x8xi1> -> tensor<4x8xf32>
    fsdp.report_output "b" %c : tensor<4x8xf32>
    return
  }
}

// -----

// What follows from inputs and positions alone is f32 until a product with a
// weight, as angles are. --cast-inputs rounds a float input where it is used.
module attributes {fsdp.options = {"param-dtype" = "bf16"}} {
  fsdp.parameter @w : tensor<8x8xf32> unit @u
  fsdp.unit @u
  fsdp.layout @u.frozen of @u elements 64 : f32 states 0 {
    members = [#fsdp.member<@w[0, 64] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%t: tensor<4x8xf32>) {
    %f = fsdp.flat @u.frozen : tensor<64xf32>
    %w = fsdp.view %f[@w at 0] : tensor<64xf32> -> tensor<8x8xf32>
    // CHECK: %[[SIN:.*]] = nn.sin %{{.*}} : tensor<4x8xf32>
    %s = nn.sin %t : tensor<4x8xf32>
    // CHECK: %[[HALF:.*]] = nn.cast %[[SIN]] : tensor<4x8xf32> -> tensor<4x8xbf16>
    // CHECK: nn.matmul %[[HALF]], %{{.*}} -> tensor<4x8xbf16>
    %h = nn.matmul %s, %w : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
    return
  }
}

// -----

module attributes {fsdp.options = {"param-dtype" = "bf16", "cast-inputs" = true}} {
  // CHECK-LABEL: func.func @microbatch
  // CHECK-SAME: %[[T:.*]]: tensor<4x8xf32>
  func.func @microbatch(%t: tensor<4x8xf32>) {
    // CHECK: %[[HALF:.*]] = nn.cast %[[T]] : tensor<4x8xf32> -> tensor<4x8xbf16>
    // CHECK: nn.sin %[[HALF]] : tensor<4x8xbf16>
    %s = nn.sin %t : tensor<4x8xf32>
    return
  }
}

// -----

// Arithmetic of a parameter is f32. What it scales, a norm included, is f32 up to
// the next product.
module attributes {fsdp.options = {"param-dtype" = "bf16"}} {
  fsdp.parameter @g : tensor<8xf32> unit @u
  fsdp.parameter @w : tensor<8x8xf32> unit @u
  fsdp.unit @u
  fsdp.layout @u.frozen of @u elements 80 : f32 states 0 {
    members = [#fsdp.member<@g[0, 8] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@w[16, 64] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  // CHECK-LABEL: func.func @microbatch
  func.func @microbatch(%x: tensor<8x8xf32>) {
    %f = fsdp.flat @u.frozen : tensor<80xf32>
    %g = fsdp.view %f[@g at 0] : tensor<80xf32> -> tensor<8xf32>
    %w = fsdp.view %f[@w at 16] : tensor<80xf32> -> tensor<8x8xf32>
    // CHECK: nn.matmul {{.*}} -> tensor<8x8xbf16>
    %h = nn.matmul %x, %w : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    %one = nn.constant dense<1.0> : tensor<8xf32>
    // CHECK: %[[SCALE:.*]] = nn.add %{{.*}} : tensor<8xf32>
    %scale = nn.add %g, %one : tensor<8xf32>
    // CHECK: nn.rms_norm %{{.*}} weight %[[SCALE]] {{.*}} -> tensor<8x8xf32>, tensor<8xf32>
    %n, %rstd = nn.rms_norm %h weight %scale {epsilon = 1.0e-5 : f64} : tensor<8x8xf32>, weight tensor<8xf32> -> tensor<8x8xf32>, tensor<8xf32>
    // CHECK: %[[ROWS:.*]] = nn.broadcast %[[SCALE]] : tensor<8xf32> -> tensor<8x8xf32>
    %rows = nn.broadcast %scale : tensor<8xf32> -> tensor<8x8xf32>
    // CHECK: %[[P:.*]] = nn.mul %{{.*}}, %[[ROWS]] : tensor<8x8xf32>
    %p = nn.mul %n, %rows : tensor<8x8xf32>
    // CHECK: nn.matmul {{.*}} -> tensor<8x8xbf16>
    %q = nn.matmul %p, %w : tensor<8x8xf32>, tensor<8x8xf32> -> tensor<8x8xf32>
    return
  }
}
