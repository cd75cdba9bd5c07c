// RUN: fsdpc-opt %s --split-input-file --verify-diagnostics
// The discardable attributes of the fsdp and rt dialects. Those of the options
// are in invalid_options.mlir.

// An unknown name is refused with the nearest known one.
// expected-error @below {{there is no attribute 'fsdp.option' of ops; did you mean 'fsdp.options'?}}
module attributes {fsdp.option = {}} {
}

// -----

// The state of the compile belongs to the module.
module {
  // expected-error @below {{attribute 'fsdp.done' belongs on a module, not on 'func.func'}}
  func.func private @f() attributes {fsdp.done = "units"}
}

// -----

// The last pass is named by a string.
// expected-error @below {{attribute 'fsdp.done' = 3 : i64 is not a string}}
module attributes {fsdp.done = 3 : i64} {
}

// -----

// Composites are counted.
// expected-error @below {{attribute 'fsdp.recognised' = {gelu = "two"} is not a dictionary of i64 counts}}
module attributes {fsdp.recognised = {gelu = "two"}} {
}

// -----

// The arena has known entries.
// expected-error @below {{attribute 'fsdp.arena' = {byts = 512 : i64} is not a dictionary of i64 'bytes'}}
module attributes {fsdp.arena = {byts = 512 : i64}} {
}

// -----

// Its sizes are not negative.
// expected-error @below {{attribute 'fsdp.arena' = {bytes = -1 : i64} is not a dictionary of i64 'bytes'}}
module attributes {fsdp.arena = {bytes = -1 : i64}} {
}

// -----

// A term of the communication is counted per microbatch or per step.
// expected-error @below {{is not a dictionary of 'trainable', 'frozen' and 'terms'}}
module attributes {fsdp.communication = {trainable = 8 : i64, frozen = 0 : i64,
  terms = [{what = "all_gather", bytes = 32 : i64, type = "f32", per = "epoch"}]}} {
}

// -----

// The hash of the schedule is a string.
// expected-error @below {{attribute 'fsdp.schedule_hash' = 7 : i64 is not a string}}
module attributes {fsdp.schedule_hash = 7 : i64} {
}

// -----

// A unit is a symbol.
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{attribute 'fsdp.unit' = "h.0" is not a symbol}}
  %y = nn.exp %x {fsdp.unit = "h.0"} : tensor<4xf32>
  return
}

// -----

// The mark of the backward has no value.
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{attribute 'fsdp.backward' = true is not a unit attribute}}
  %y = nn.exp %x {fsdp.backward = true} : tensor<4xf32>
  return
}

// -----

// Operations and bytes are counts.
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{attribute 'fsdp.flops' = 4.000000e+00 : f64 is not an i64 of 0 or more}}
  %y = nn.exp %x {fsdp.flops = 4.0 : f64} : tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{attribute 'fsdp.bytes' = -4 : i64 is not an i64 of 0 or more}}
  %y = nn.exp %x {fsdp.bytes = -4 : i64} : tensor<4xf32>
  return
}

// -----

// Microseconds are not negative.
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{attribute 'fsdp.cost_us' = -1.000000e+00 : f64 is not an f64 of 0 or more}}
  %y = nn.exp %x {fsdp.cost_us = -1.0 : f64} : tensor<4xf32>
  return
}

// -----

// Only a wait stalls compute.
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{attribute 'fsdp.exposed_us' belongs on a wait, not on 'nn.exp'}}
  %y = nn.exp %x {fsdp.exposed_us = 1.0 : f64} : tensor<4xf32>
  return
}

// -----

// Offsets are bytes, or -1.
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{attribute 'fsdp.offsets' = array<i64: -64> is not an i64 array of offsets, or -1 for a result without memory}}
  %y = nn.exp %x {fsdp.offsets = array<i64: -64>} : tensor<4xf32>
  return
}

// -----

// An argument is named by a string.
// expected-error @below {{attribute 'fsdp.input' = 0 : i64 is not a string}}
func.func @f(%x: tensor<4xf32> {fsdp.input = 0 : i64}) {
  return
}

// -----

// Rows of a table are counted.
// expected-error @below {{attribute 'fsdp.bound' = "8" is not an i64 of 0 or more}}
func.func @f(%x: tensor<4xi64> {fsdp.bound = "8"}) {
  return
}

// -----

// A value outside the table is an integer.
// expected-error @below {{attribute 'fsdp.ignored' = -1.000000e+02 : f64 is not an i64}}
func.func @f(%x: tensor<4xi64> {fsdp.ignored = -100.0 : f64}) {
  return
}

// -----

// An attribute of ops is unknown on an argument.
// expected-error @below {{there is no attribute 'fsdp.unit' of arguments; did you mean 'fsdp.input'?}}
func.func @f(%x: tensor<4xi64> {fsdp.unit = @u}) {
  return
}

// -----

// The rt dialect has no discardable attributes.
// expected-error @below {{there is no attribute 'rt.stream' of ops}}
func.func private @f() attributes {rt.stream = "compute"}

// -----

// expected-error @below {{there is no attribute 'rt.stream' of arguments}}
func.func @f(%x: tensor<4xi64> {rt.stream = "compute"}) {
  return
}

// -----

// The times that --persist is judged by are not negative.
// expected-error @below {{is not a dictionary of f64 'exposed_us' and 'gathered_us'}}
module attributes {fsdp.persist = {exposed_us = 1.0 : f64, gathered_us = -1.0 : f64}} {
}

// -----

// Units are symbols.
// expected-error @below {{is not a dictionary of i64 'pieces', 'of_pieces', 'bytes' and 'of_bytes', f64 'copy_us' and 'exposed_us', and symbols 'units'}}
module attributes {fsdp.offloaded = {bytes = 0 : i64, copy_us = 0.0 : f64, exposed_us = 0.0 : f64, of_bytes = 2 : i64, of_pieces = 1 : i64, pieces = 0 : i64, units = ["a"]}} {
}

// -----

func.func @microbatch(%x: tensor<2xf32>) {
  // expected-error @below {{has an empty name}}
  fsdp.report_output "" %x : tensor<2xf32>
  return
}

// -----

// Metrics are averaged in f64 from f32.
func.func @microbatch(%x: tensor<i64>) {
  // expected-error @below {{'correct' is a scalar of type 'i64'; cast it to f32}}
  fsdp.report_output "correct" %x : tensor<i64>
  return
}

// -----

// States are told apart by their names.
// expected-error @below {{has states ["m", "m"]; expected different names}}
module attributes {fsdp.optimizer = #fsdp.optimizer<states = ["m", "m"]>} {}

// -----

// expected-error @below {{has states [1]; expected different names}}
module attributes {fsdp.optimizer = #fsdp.optimizer<states = [1]>} {}

// -----

// The kernels of sums have room for so many.
// expected-error @below {{has 9 sums; it may have 8}}
module attributes {fsdp.optimizer = #fsdp.optimizer<states = [], sums = 9>} {}

// -----

// A program takes one number for both.
// expected-error @below {{is both factored and orthogonal}}
module attributes {fsdp.optimizer = #fsdp.optimizer<states = ["m"], factored = true, orthogonal = true>} {}

// -----

// The two numbers are what grows with the number of microbatches.
// expected-error @below {{is 'per_microbatch' without 'at_least' or 'plus'}}
fsdp.loss_weight @loss_weight ["m"] per_microbatch {
^bb0(%m: tensor<f32>):
  fsdp.yield %m : tensor<f32>
}
