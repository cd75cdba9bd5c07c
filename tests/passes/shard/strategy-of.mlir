// RUN: fsdpc-opt %s --shard-parameters --split-input-file --verify-diagnostics | FileCheck %s

// A glob matches whole names of units, the root included, and the first match
// counts. The strategy stands on both layouts of the unit, unless it is that of
// --strategy, and decides what every rank keeps.
// CHECK: fsdp.layout @root.flat of @root strategy "ddp" trainable {{.*}} whole = ["master", "compute", "gradient", "state"]
// CHECK: fsdp.layout @h.0.flat of @h.0 strategy "zero2" trainable {{.*}} whole = ["compute"]
// CHECK: fsdp.layout @h.0.frozen of @h.0 strategy "zero2" elements {{.*}} whole = ["compute"]
// CHECK: fsdp.layout @h.1.flat of @h.1 strategy "zero1" trainable {{.*}} whole = ["compute"]
// CHECK: fsdp.layout @h.10.flat of @h.10 trainable {{.*}} whole = []
module attributes {fsdp.options = {"strategy-of" = ["root=no_shard", "h.0=zero2", "h.?=zero1", "h.10=full_shard"]}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @root
  fsdp.parameter @w0 : tensor<16xf32> trainable unit @h.0
  fsdp.parameter @f0 : tensor<16xf32> unit @h.0
  fsdp.parameter @w1 : tensor<16xf32> trainable unit @h.1
  fsdp.parameter @w10 : tensor<16xf32> trainable unit @h.10
  fsdp.unit @root
  fsdp.unit @h.0
  fsdp.unit @h.1
  fsdp.unit @h.10
  func.func @microbatch(%x: tensor<16xf32>) {
    %a = fsdp.load @w {fsdp.unit = @root} : tensor<16xf32>
    %b = fsdp.load @w0 {fsdp.unit = @h.0} : tensor<16xf32>
    %f = fsdp.load @f0 {fsdp.unit = @h.0} : tensor<16xf32>
    %c = fsdp.load @w1 {fsdp.unit = @h.1} : tensor<16xf32>
    %d = fsdp.load @w10 {fsdp.unit = @h.10} : tensor<16xf32>
    %0 = nn.neg %a {fsdp.unit = @root} : tensor<16xf32>
    %1 = nn.mul %b, %f {fsdp.unit = @h.0} : tensor<16xf32>
    %2 = nn.neg %c {fsdp.unit = @h.1} : tensor<16xf32>
    %3 = nn.neg %d {fsdp.unit = @h.10} : tensor<16xf32>
    fsdp.gradient @w, %0 {fsdp.unit = @root} : tensor<16xf32>
    fsdp.gradient @w0, %1 {fsdp.unit = @h.0} : tensor<16xf32>
    fsdp.gradient @w1, %2 {fsdp.unit = @h.1} : tensor<16xf32>
    fsdp.gradient @w10, %3 {fsdp.unit = @h.10} : tensor<16xf32>
    return
  }
}

// -----

// The hybrid strategies keep what those keep that they cut over groups.
// CHECK: fsdp.layout @a.flat of @a trainable {{.*}} whole = []
// CHECK: fsdp.layout @b.flat of @b strategy "hybrid_zero2" trainable {{.*}} whole = ["compute"]
// CHECK: fsdp.layout @c.flat of @c strategy "hybrid_zero1" trainable {{.*}} whole = ["compute"]
module attributes {fsdp.options = {"strategy" = "hybrid", "strategy-of" = ["b=hybrid_shard_zero2", "c=hybrid_zero1"]}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @b
  fsdp.parameter @u : tensor<16xf32> trainable unit @c
  fsdp.unit @a
  fsdp.unit @b
  fsdp.unit @c
  func.func @microbatch(%x: tensor<16xf32>) {
    %a = fsdp.load @w {fsdp.unit = @a} : tensor<16xf32>
    %b = fsdp.load @v {fsdp.unit = @b} : tensor<16xf32>
    %c = fsdp.load @u {fsdp.unit = @c} : tensor<16xf32>
    %0 = nn.neg %a {fsdp.unit = @a} : tensor<16xf32>
    %1 = nn.neg %b {fsdp.unit = @b} : tensor<16xf32>
    %2 = nn.neg %c {fsdp.unit = @c} : tensor<16xf32>
    fsdp.gradient @w, %0 {fsdp.unit = @a} : tensor<16xf32>
    fsdp.gradient @v, %1 {fsdp.unit = @b} : tensor<16xf32>
    fsdp.gradient @u, %2 {fsdp.unit = @c} : tensor<16xf32>
    return
  }
}

// -----

// A glob that matches no unit is an error; a part of a name is no match.
// expected-error@+1 {{--strategy-of 'layer=zero2' matches no unit; available: 'layer.0', 'root'}}
module attributes {fsdp.options = {"strategy-of" = ["layer=zero2"]}} {
  fsdp.parameter @w : tensor<8xf32> unit @layer.0
  fsdp.unit @root
  fsdp.unit @layer.0
  func.func @microbatch() {
    %w = fsdp.load @w : tensor<8xf32>
    return
  }
}

// -----

// A rule decides about one unit at least.
// expected-error@+1 {{--strategy-of 'h.0=zero1' has no effect: every unit that it matches is matched by an earlier one, such as 'h.*=zero2', and the first counts; put it first}}
module attributes {fsdp.options = {"strategy-of" = ["h.*=zero2", "h.0=zero1"]}} {
  fsdp.parameter @w : tensor<8xf32> unit @h.0
  fsdp.unit @h.0
  func.func @microbatch() {
    %w = fsdp.load @w : tensor<8xf32>
    return
  }
}

// -----

// A flag about gathers needs something that is gathered.
// expected-error@+1 {{--limit-all-gathers has no effect: no layout is gathered under zero3}}
module attributes {fsdp.options = {"strategy-of" = ["*=zero2"], "limit-all-gathers" = 1 : i64}} {
  fsdp.parameter @w : tensor<8xf32> unit @h.0
  fsdp.unit @h.0
  func.func @microbatch() {
    %w = fsdp.load @w : tensor<8xf32>
    return
  }
}

// -----

// expected-error@+1 {{--persist has no effect: --strategy-of leaves no unit to zero3}}
module attributes {fsdp.options = {"strategy-of" = ["*=zero2"], persist = 8 : i64}} {
  fsdp.parameter @w : tensor<8xf32> unit @h.0
  fsdp.unit @h.0
  func.func @microbatch() {
    %w = fsdp.load @w : tensor<8xf32>
    return
  }
}
