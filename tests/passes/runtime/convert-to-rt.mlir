// Planned ops become calls of the runtime, collectives with events around them.
// RUN: fsdpc-opt %s --convert-to-rt --verify-rt --split-input-file | FileCheck %s
// RUN: fsdpc-opt %s --convert-to-rt --elide-events --verify-rt --split-input-file -o %t

// A start waits for everything enqueued on compute before it, and a wait makes
// compute wait. A view is an offset (element 16 is byte 64) in the layout, which
// is gathered at byte 64 of the arena, and a free is nothing. A call keeps its op's unit and costs, for traces.
// CHECK: rt.input @x : tensor<4x4xf32>
// CHECK-LABEL: func.func @microbatch()
// CHECK-NEXT: rt.event_record compute 0
// CHECK-NEXT: rt.event_wait gather 0
// CHECK-NEXT: %[[F:.*]] = rt.pointer gathered @a.flat + 0 bytes 128 at 64
// CHECK-NEXT: rt.all_gather [@a.flat] -> %[[F]]
// CHECK-NEXT: rt.event_record gather 1
// CHECK-NEXT: rt.event_wait compute 1
// CHECK-NEXT: %[[X:.*]] = rt.pointer input @x + 0 bytes 64
// CHECK-NEXT: %[[W:.*]] = rt.pointer gathered @a.flat + 64 bytes 64 at 64
// CHECK-NEXT: %[[Y:.*]] = rt.pointer arena + 0 bytes 64
// CHECK-NEXT: rt.matmul <4 x 4 x 4, f32, f32 -> f32 {{.*}}> %[[X]], %[[W]] -> %[[Y]] {fsdp.bytes = 192 : i64, fsdp.flops = 128 : i64, fsdp.unit = @a}
// CHECK-NEXT: return
// CHECK-LABEL: func.func @update()
module attributes {fsdp.arena = {bytes = 512 : i64}, fsdp.options = {"max-ranks" = 2 : i64}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 32 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>, #fsdp.member<@w[16, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    fsdp.enter @a
    %t = fsdp.all_gather_start [@a.flat] {fsdp.offsets = array<i64: 64>}
    %f = fsdp.all_gather_wait %t : tensor<32xf32>
    %w = fsdp.view %f[@w at 16] : tensor<32xf32> -> tensor<4x4xf32>
    %y = nn.matmul %x, %w {fsdp.bytes = 192 : i64, fsdp.flops = 128 : i64, fsdp.offsets = array<i64: 0>, fsdp.unit = @a} : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    fsdp.free %f : tensor<32xf32>
    fsdp.exit @a
    return
  }
  func.func @update() { return }
}

// -----

// A gather that keeps secondary shards copies them before compute goes on, and
// the next one reads them.
// CHECK-LABEL: func.func @microbatch()
// CHECK: rt.all_gather [@a.frozen] -> %[[F:.*]] {fsdp.bytes = 128 : i64}
// CHECK-NEXT: rt.keep_secondary [@a.frozen], %[[F]]{{$}}
// CHECK-NEXT: rt.event_record gather 1
// CHECK: rt.gather_secondary [@a.frozen] -> %{{.*}} {fsdp.bytes = 128 : i64}
// CHECK-NEXT: rt.event_record gather 3
module attributes {fsdp.arena = {bytes = 1024 : i64}, fsdp.options = {"max-ranks" = 2 : i64}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<32xf32> unit @a
  fsdp.layout @a.frozen of @a elements 32 : f32 states 0 secondary {
    members = [#fsdp.member<@v[0, 32] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<32xf32> {fsdp.input = "x"}) {
    %t = fsdp.all_gather_start [@a.frozen] keep_secondary {fsdp.bytes = 128 : i64, fsdp.offsets = array<i64: 0>}
    %f = fsdp.all_gather_wait %t : tensor<32xf32>
    fsdp.free %f : tensor<32xf32>
    %s = fsdp.all_gather_start [@a.frozen] from_secondary {fsdp.bytes = 128 : i64, fsdp.offsets = array<i64: 0>}
    %g = fsdp.all_gather_wait %s : tensor<32xf32>
    fsdp.free %g : tensor<32xf32>
    return
  }
  func.func @update() { return }
}

// -----

// @update: the all-reduce runs on stream reduce, between events. The
// optimizer's code becomes a function, one for equal layouts.
// CHECK-LABEL: func.func @update()
// CHECK: rt.sum_squares [@a.flat] -> %[[S:.*]]
// CHECK-NEXT: rt.event_record compute 0
// CHECK-NEXT: rt.event_wait reduce 0
// CHECK-NEXT: %[[R:.*]] = rt.pointer arena + 0 bytes 128
// CHECK-NEXT: rt.all_reduce %[[R]] count 16
// CHECK-NEXT: rt.event_record reduce 1
// CHECK-NEXT: rt.event_wait compute 1
// CHECK: rt.clip [@a.flat]
// CHECK: rt.optimizer @[[NAME:.*]](@a.flat
// CHECK: rt.optimizer @[[NAME]](@b.flat
// CHECK: func.func private @[[NAME]](%{{.*}}: f32, %{{.*}}: f32, %{{.*}}: f64, %{{.*}}: f64, %{{.*}}: f64) -> f32 attributes {nn.kernel, nn.optimizer}
// CHECK-NOT: nn.optimizer
module attributes {fsdp.arena = {bytes = 192 : i64}} {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] {fsdp.offsets = array<i64: 0>} : tensor<1x16xf64>
    %r = fsdp.all_reduce %s : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %r {fsdp.offsets = array<i64: 128>, max_norm = 1.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      %n = arith.subf %p, %g : f32
      fsdp.yield %n : f32
    }
    fsdp.optimizer @b.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      %n = arith.subf %p, %g : f32
      fsdp.yield %n : f32
    }
    return
  }
}

// -----

// Sums over parameters: a layout's are where those of the members before it
// end, 16 digits per sum. The program of sums is a function as well, whose results are f64.
// CHECK: rt.clip
// CHECK-NEXT: %[[SCALE:.*]] = rt.pointer arena + 128 bytes 4
// CHECK-NEXT: %[[SUMS:.*]] = rt.pointer arena + 192 bytes 512
// CHECK: rt.member_sums @[[SUM:.*]]([@a.flat, @b.flat], %[[SCALE]]) per_member 2 -> %[[SUMS]]
// CHECK: %[[ALL:.*]] = rt.pointer arena + 192 bytes 512
// CHECK: rt.all_reduce %[[ALL]] count 64
// CHECK: %[[OF_B:.*]] = rt.pointer arena + 448 bytes 256
// CHECK: rt.optimizer @[[NAME:.*]](@b.flat, %{{.*}}) sums %[[OF_B]] per_member 2
// CHECK: func.func private @[[SUM]]({{.*}}) -> (f64, f64) attributes {nn.kernel, nn.optimizer}
// CHECK: func.func private @[[NAME]]({{.*}}: f64, %{{.*}}: f64) -> f32 attributes {nn.kernel, nn.optimizer}
module attributes {fsdp.arena = {bytes = 704 : i64}} {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] {fsdp.offsets = array<i64: 0>} : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %s {fsdp.offsets = array<i64: 128>, max_norm = 1.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    %n = fsdp.member_sums [@a.flat, @b.flat], %c : tensor<f32> -> tensor<4x16xf64> attributes {fsdp.offsets = array<i64: 192>} {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      %wide = arith.extf %p : f32 to f64
      fsdp.yield %wide, %lr : f64, f64
    }
    %t = fsdp.all_reduce %n : tensor<4x16xf64>
    fsdp.optimizer @b.flat, %c sums %t[2] : tensor<f32>, tensor<4x16xf64> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64, %x: f64, %y: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// Factors of averages follow from the squares of small matrices, one for each
// of 32 elements. A layout's are where those of the layout before it end: eight
// rows and columns.
// CHECK: rt.factor_sums [@a.flat, @b.flat], %{{.*}} clip_value 0.000000e+00 -> %[[SUMS:.*]]
// CHECK: rt.all_reduce %{{.*}} count 32
// CHECK-DAG: %[[ALL:.*]] = rt.pointer arena + 192 bytes 256
// CHECK-DAG: %[[FACTORS:.*]] = rt.pointer arena + 448 bytes 128
// CHECK: rt.update_factors [@a.flat, @b.flat], %[[ALL]] eps 0.000000e+00 power -1.000000e+00 -> %[[FACTORS]]
// CHECK: rt.member_sums @{{.*}}([@a.flat, @b.flat], %{{.*}}) per_member 1 factors %{{.*}} -> %{{.*}}
// CHECK-DAG: %[[OF_MEMBER:.*]] = rt.pointer arena + 704 bytes 128
// CHECK-DAG: %[[OF_B:.*]] = rt.pointer arena + 512 bytes 64
// CHECK: rt.optimizer @{{.*}}(@b.flat, %{{.*}}) sums %[[OF_MEMBER]] per_member 1 factors %[[OF_B]]
module attributes {fsdp.arena = {bytes = 832 : i64}} {
  fsdp.unit @a
  fsdp.unit @b
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.parameter @w : tensor<4x4xf32> trainable unit @b
  fsdp.buffer @v.row_var : tensor<4x1xf32> state {rule = "zeros"}
  fsdp.buffer @v.col_var : tensor<1x4xf32> state {rule = "zeros"}
  fsdp.buffer @w.row_var : tensor<4x1xf32> state {rule = "zeros"}
  fsdp.buffer @w.col_var : tensor<1x4xf32> state {rule = "zeros"}
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch() { return }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] {fsdp.offsets = array<i64: 0>} : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %s {fsdp.offsets = array<i64: 128>, max_norm = 1.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    %m = fsdp.factor_sums [@a.flat, @b.flat], %c {clip_value = 0.0 : f64, fsdp.offsets = array<i64: 192>} : tensor<f32> -> tensor<32xf64>
    %r = fsdp.all_reduce %m : tensor<32xf64>
    %f = fsdp.update_factors [@a.flat, @b.flat], %r {eps = 0.0 : f64, fsdp.offsets = array<i64: 448>, power = -1.0 : f64} : tensor<32xf64> -> tensor<16xf64>
    %n = fsdp.member_sums [@a.flat, @b.flat], %c factors %f : tensor<f32>, tensor<16xf64> -> tensor<2x16xf64> attributes {fsdp.offsets = array<i64: 576>} {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64):
      fsdp.yield %lr : f64
    }
    %t = fsdp.all_reduce %n : tensor<2x16xf64>
    fsdp.optimizer @b.flat, %c sums %t[1] factors %f[8] : tensor<f32>, tensor<2x16xf64>, tensor<16xf64> {
    ^bb0(%p: f32, %g: f32, %v: f32, %lr: f64, %step: f64, %decay: f64, %x: f64):
      fsdp.yield %p : f32
    }
    return
  }
}

// -----

// If parameters are replicated in bf16, the optimizer's function says so: its
// kernel also writes that copy.
// CHECK: fsdp.layout @a.flat of @a trainable elements 16 : bf16
// CHECK: attributes {nn.compute = bf16, nn.kernel, nn.optimizer}
module attributes {fsdp.arena = {bytes = 192 : i64}} {
  fsdp.unit @a
  fsdp.parameter @v : tensor<4x4xf32> trainable unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : bf16 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  func.func @microbatch() { return }
  func.func @update() {
    %s = fsdp.sum_squares [@a.flat] {fsdp.offsets = array<i64: 0>} : tensor<1x16xf64>
    %c = fsdp.clip_scale [@a.flat], %s {fsdp.offsets = array<i64: 128>, max_norm = 1.0 : f64} : tensor<1x16xf64> -> tensor<f32>
    fsdp.optimizer @a.flat, %c : tensor<f32> {
    ^bb0(%p: f32, %g: f32, %lr: f64, %step: f64, %decay: f64):
      %n = arith.subf %p, %g : f32
      fsdp.yield %n : f32
    }
    return
  }
}

// -----

// A microbatch sums values over ranks in place, and compute waits for the sum.
// A call says whose statistics a buffer takes, unless it takes all in turn.
// CHECK-LABEL: rt.input @values
// CHECK: rt.event_record compute [[E:[0-9]+]]
// CHECK-NEXT: rt.event_wait reduce [[E]]
// CHECK-NEXT: %[[V:.*]] = rt.pointer arena + 0 bytes 64
// CHECK-NEXT: rt.all_reduce %[[V]] count 8 {fsdp.unit = @a}
// CHECK-NEXT: rt.event_record reduce [[F:[0-9]+]]
// CHECK-NEXT: rt.event_wait compute [[F]]
// CHECK: rt.update_statistics @m, %{{.*}} momentum 1.000000e-01{{$}}
// CHECK: rt.update_statistics @v, %{{.*}} momentum 1.000000e-01 {mode = 3 : i32}
module attributes {fsdp.arena = {bytes = 512 : i64}, fsdp.options = {"max-ranks" = 2 : i64}} {
  fsdp.unit @a
  fsdp.buffer @m : tensor<16xf32>
  fsdp.buffer @v : tensor<16xf32>
  func.func private @exp(%x: tensor<8xf64>) -> tensor<8xf64> attributes {nn.kernel} {
    %y = nn.exp %x : tensor<8xf64>
    return %y : tensor<8xf64>
  }
  func.func @microbatch(%x: tensor<8xf64> {fsdp.input = "values"}, %s: tensor<16xf32> {fsdp.input = "s"}) {
    %y = nn.launch @exp(%x) {fsdp.offsets = array<i64: 0>, fsdp.unit = @a} : (tensor<8xf64>) -> tensor<8xf64>
    %z = fsdp.all_reduce %y {fsdp.offsets = array<i64: -1>, fsdp.unit = @a} : tensor<8xf64>
    fsdp.update_statistics @m, %s {momentum = 0.1 : f64} : tensor<16xf32>
    fsdp.update_statistics @v, %s {mode = "average", momentum = 0.1 : f64} : tensor<16xf32>
    return
  }
  func.func @update() { return }
}
