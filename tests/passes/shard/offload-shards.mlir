// RUN: fsdpc-opt %s --offload-shards --split-input-file --verify-diagnostics | FileCheck %s

// The states of the layouts that have any: a frozen layout has none, and
// neither has the group of plain SGD. The average of --ema is a state.
// CHECK: fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 average offloaded ["state"] {
// CHECK: fsdp.layout @a.flat.group1 of @a group 1 trainable elements 16 : f32 states 0 {
// CHECK: fsdp.layout @a.frozen of @a elements 16 : f32 states 0 {
module attributes {fsdp.options = {"offload" = "optimizer"}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  fsdp.parameter @f : tensor<16xf32> unit @a
  fsdp.unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 1 average {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @a.flat.group1 of @a group 1 trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @a.frozen of @a elements 16 : f32 states 0 {
    members = [#fsdp.member<@f[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}

// -----

// zero3 has a part of each, also of frozen parameters. zero2 computes in bf16
// beside masters; those of f32 are a part of what every rank keeps whole. ddp
// has nothing that is a rank's own.
// CHECK: @a.flat of {{.*}} offloaded ["state", "parameter", "gradient"] {
// CHECK: @a.frozen of {{.*}} states 0 offloaded ["parameter"] {
// CHECK: @a.flat.zero2 of {{.*}} offloaded ["state", "parameter", "gradient"] {
// CHECK: @a.flat.zero2.f32 of {{.*}} offloaded ["state", "gradient"] {
// CHECK: @a.flat.ddp of {{.*}} offloaded ["state"] {
module attributes {fsdp.options = {"offload" = "optimizer,parameters,gradients", "param-dtype" = "bf16"}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.parameter @f : tensor<16xf32> unit @a
  fsdp.parameter @v : tensor<16xf32> trainable unit @a
  fsdp.parameter @k : tensor<16xf32> trainable unit @a {fsdp.keep_f32}
  fsdp.parameter @d : tensor<16xf32> trainable unit @a
  fsdp.unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : bf16 states 2 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @a.frozen of @a elements 16 : bf16 states 0 {
    members = [#fsdp.member<@f[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @a.flat.zero2 of @a strategy "zero2" trainable elements 16 : bf16 states 2 {
    members = [#fsdp.member<@v[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  fsdp.layout @a.flat.zero2.f32 of @a strategy "zero2" trainable elements 16 : f32 states 2 {
    members = [#fsdp.member<@k[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
  fsdp.layout @a.flat.ddp of @a strategy "ddp" trainable elements 16 : bf16 states 2 {
    members = [#fsdp.member<@d[0, 16] rate 1.0 : f64 decay 0.0 : f64>],
    whole = ["master", "compute", "gradient", "state"]}
}

// -----

// expected-error @below {{--offload=optimizer has no effect: the optimizer keeps no states}}
module attributes {fsdp.options = {"offload" = "optimizer", "optimizer" = "sgd"}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 0 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}

// -----

// expected-error @below {{--offload=parameters has no effect: every rank keeps all parameters in memory; use zero3}}
module attributes {fsdp.options = {"offload" = "parameters", "strategy" = "zero2"}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 2 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}
}

// -----

// Blocks are not reduced by ranges of a shard.
// expected-error @below {{--offload=gradients has no effect: no rank has a gradient of its shard alone that is reduced in ranges}}
module attributes {fsdp.options = {"offload" = "gradients", "reduce-dtype" = "i8"}} {
  fsdp.parameter @w : tensor<16xf32> trainable unit @a
  fsdp.unit @a
  fsdp.layout @a.flat of @a trainable elements 16 : f32 states 2 {
    members = [#fsdp.member<@w[0, 16] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
}
