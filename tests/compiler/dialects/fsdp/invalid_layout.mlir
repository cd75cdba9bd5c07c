// RUN: fsdpc-opt %s --verify-diagnostics --split-input-file

// Members begin at multiples of 16 elements.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.parameter @b : tensor<8xf32> trainable unit @u
fsdp.unit @u
// expected-error@+1 {{member 'b' has offset 8, which is not a multiple of 16}}
fsdp.layout @u.flat of @u trainable elements 16 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>,
  #fsdp.member<@b[8, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}

// -----

// Members do not overlap and are in ascending order.
fsdp.parameter @a : tensor<40xf32> trainable unit @u
fsdp.parameter @b : tensor<8xf32> trainable unit @u
fsdp.unit @u
// expected-error@+1 {{member 'b' has offset 32, but the previous member ends at 40}}
fsdp.layout @u.flat of @u trainable elements 40 : f32 states 0 {members = [
  #fsdp.member<@a[0, 40] rate 1.0 : f64 decay 0.0 : f64>,
  #fsdp.member<@b[32, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}

// -----

// The layout ends with its last member.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
// expected-error@+1 {{has 16 elements, but its last member ends at 8}}
fsdp.layout @u.flat of @u trainable elements 16 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}

// -----

// Ranks can keep four kinds of buffers replicated.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
// expected-error@+1 {{cannot keep 'grad' replicated; expected compute, gradient, master or state}}
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = ["grad"]}

// -----

// A layout has only frozen or only trainable parameters.
fsdp.parameter @a : tensor<8xf32> unit @u
fsdp.unit @u
// expected-error@+1 {{contains parameter 'a', but its other members are trainable}}
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}

// -----

// A member is as long as its parameter.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
// expected-error@+1 {{has 4 elements for parameter 'a' of type 'tensor<8xf32>'}}
fsdp.layout @u.flat of @u trainable elements 4 : f32 states 0 {members = [
  #fsdp.member<@a[0, 4] rate 1.0 : f64 decay 0.0 : f64>], whole = []}

// -----

// A strategy has one of the names of --strategy.
fsdp.parameter @a : tensor<8xf32> unit @u
fsdp.unit @u
// expected-error@+1 {{has strategy 'zero4', which is none of ddp|zero1|zero2|zero3|hybrid|hybrid_zero2|hybrid_zero1|oss|no_shard|shard_grad_op|full_shard|hybrid_shard|hybrid_shard_zero2; did you mean 'zero1'?}}
fsdp.layout @u.frozen of @u strategy "zero4" elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}

// -----

// Groups are numbered from 1.
fsdp.unit @u
fsdp.parameter @w : tensor<8xf32> trainable unit @u
// expected-error @below {{attribute 'group' failed to satisfy constraint}}
fsdp.layout @u.flat of @u group 0 trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}

// -----

// A frozen layout is not updated.
fsdp.unit @u
fsdp.parameter @w : tensor<8xf32> unit @u
// expected-error @below {{is frozen, but has a group}}
fsdp.layout @u.frozen of @u group 1 elements 8 : f32 states 0 {members = [
  #fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}

// -----

// The average is a state.
fsdp.unit @u
fsdp.parameter @w : tensor<8xf32> trainable unit @u
// expected-error @below {{has an average, but no states; it is the last one}}
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 average {members = [
  #fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}

// -----

// Its optimizer keeps the others.
fsdp.unit @u
fsdp.parameter @w : tensor<8xf32> trainable unit @u
// expected-error @below {{has 1 states of its optimizer, but names ["exp_avg", "exp_avg_sq"]}}
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 2 average {members = [
  #fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>],
  optimizer = #fsdp.optimizer<states = ["exp_avg", "exp_avg_sq"]>, whole = []}

// -----

// Nothing updates frozen members.
fsdp.unit @u
fsdp.parameter @w : tensor<8xf32> unit @u
// expected-error @below {{is frozen, but has an optimizer}}
fsdp.layout @u.frozen of @u elements 8 : f32 states 0 {members = [
  #fsdp.member<@w[0, 8] rate 1.0 : f64 decay 0.0 : f64>], optimizer = #fsdp.optimizer<states = []>, whole = []}

// -----

// A layout that every rank has whole is not gathered, from no shards at all.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
// expected-error@+1 {{has a secondary shard, but keeps 'compute' replicated}}
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 secondary {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = ["compute"]}

// -----

// A gather keeps and reads secondary shards of layouts that have them.
fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @f() {
  // expected-error@+1 {{reads the secondary shard of layout 'u.flat', which has none}}
  %a = fsdp.all_gather [@u.flat] from_secondary : tensor<8xf32>
  return
}

// -----

fsdp.parameter @a : tensor<8xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @u.flat of @u trainable elements 8 : f32 states 0 secondary {members = [
  #fsdp.member<@a[0, 8] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @f() {
  // expected-error@+1 {{both keeps secondary shards and reads them}}
  %a = fsdp.all_gather_start [@u.flat] keep_secondary from_secondary
  return
}
