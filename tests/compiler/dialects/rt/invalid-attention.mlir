// Each rule of an attention's plan, broken.
// RUN: fsdpc-opt %s --verify-diagnostics --split-input-file

// Elements are of a type that libraries compute in.
// expected-error @below {{element type must be f32, bf16 or f16, not 'f64'}}
func.func private @f() attributes {plan = #rt.attention<f64, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8]>}

// -----

// Query and key are batch, heads, rows, width.
// expected-error @below {{the shapes of query and key must have 4 extents, not 3 and 4}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8]>}

// -----

// No extent is empty.
// expected-error @below {{extent 0 is less than 1}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 0, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8]>}

// -----

// Libraries count extents in 32 bits.
// expected-error @below {{extent 2147483648 is greater than 2147483647}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 2147483648, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8]>}

// -----

// Nor are values.
// expected-error @below {{value width 0 is less than 1}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 6, 8], 0 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8]>}

// -----

// The same for values.
// expected-error @below {{value width 2147483648 is greater than 2147483647}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 6, 8], 2147483648 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8]>}

// -----

// Scores are products of rows of one width.
// expected-error @below {{query [2, 2, 4, 8] and key [2, 1, 6, 4] must agree in batch and width}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 6, 4], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8]>}

// -----

// Each key head serves as many query heads.
// expected-error @below {{query heads, 2, must be a multiple of the key heads, 3}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 3, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8]>}

// -----

// A scale that is infinite makes every weight a NaN.
// expected-error @below {{is not finite in f32}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0x7FF0000000000000 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8]>}

// -----

// Kernels multiply by the scale in f32, of which 1e39 is beyond.
// expected-error @below {{scale 1.000000e+39 is not finite in f32}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 1.0e39 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8]>}

// -----

// A mask is added to scores or chooses keys.
// expected-error @below {{mask must be i1, f32, bf16 or f16, not 'i32'}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8] mask i32 [6, 0, 0, 1]>}

// -----

// A mask has strides of batch, head, query and key.
// expected-error @below {{mask must have 4 strides, not 3}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8] mask i1 [6, 0, 1]>}

// -----

// Others have strides of batch, head and row.
// expected-error @below {{key must have 3 strides, not 4}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8, 1], [48, 0, 8] -> [64, 32, 8]>}

// -----

// Nothing lies in front of an address.
// expected-error @below {{stride -8 of value is negative}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, -8] -> [64, 32, 8]>}

// -----

// Ends of tensors are counted in 64 bits.
// expected-error @below {{stride 281474976710656 of key spans more than 281474976710656 elements}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [281474976710656, 0, 8], [48, 0, 8] -> [64, 32, 8]>}

// -----

// So are those of a mask.
// expected-error @below {{stride 140737488355329 of mask spans more than 281474976710656 elements}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8] mask i1 [140737488355329, 0, 0, 1]>}

// -----

// Rows of a result are apart, so that their number is bounded by their strides.
// expected-error @below {{stride 8 of output lets its rows overlap: it must be at least 17179869176}}
func.func private @f() attributes {plan = #rt.attention<f32, [2147483647, 2147483647, 2147483647, 8], [2147483647, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 8, 8]>}

// -----

// The strides that keep as many apart span too much.
// expected-error @below {{stride 17179869176 of output spans more than 281474976710656 elements}}
func.func private @f() attributes {plan = #rt.attention<f32, [2147483647, 2147483647, 2147483647, 8], [2147483647, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 17179869176, 8]>}

// -----

// No two rows of a result share memory: heads of 4 rows of 8 elements are 32 apart.
// expected-error @below {{stride 16 of output lets its rows overlap: it must be at least 32}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 16, 8]>}

// -----

// The results of the gradient are the cotangents.
// expected-error @below {{stride 4 of dkey lets its rows overlap: it must be at least 8}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8] grad [64, 32, 8] -> [64, 32, 8], [48, 0, 4], [48, 0, 8]>}

// -----

// A library of products alone computes no attention.
// expected-error @below {{library 'cublaslt' computes no attention; use 'cudnn' or 'products'}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8] library "cublaslt">}

// -----

// Fused attention exists for types of 16 bits.
// expected-error @below {{library 'cudnn' computes bf16 and f16, not 'f32'}}
func.func private @f() attributes {plan = #rt.attention<f32, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8] library "cudnn">}

// -----

// It takes no mask.
// expected-error @below {{library 'cudnn' takes no mask}}
func.func private @f() attributes {plan = #rt.attention<bf16, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8] mask i1 [6, 0, 0, 1] library "cudnn">}

// -----

// Its causal masks start at the first key, those of a plan end at the last one.
// expected-error @below {{library 'cudnn' computes no causal attention of 4 queries and 6 keys}}
func.func private @f() attributes {plan = #rt.attention<bf16, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal true strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8] library "cudnn">}

// -----

// Its heads are at most 128 wide.
// expected-error @below {{library 'cudnn' takes widths that are a multiple of 8 up to 128, but value has width 136}}
func.func private @f() attributes {plan = #rt.attention<bf16, [2, 2, 4, 8], [2, 1, 6, 8], 136 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [816, 0, 136] -> [1088, 544, 136] library "cudnn">}

// -----

// It loads 16 bytes at a time: 8 elements of bf16.
// expected-error @below {{library 'cudnn' needs rows that are aligned to 16 bytes, but query has stride 12}}
func.func private @f() attributes {plan = #rt.attention<bf16, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [96, 48, 12], [48, 0, 8], [48, 0, 8] -> [64, 32, 8] library "cudnn">}

// -----

// The cotangents are aligned, too.
// expected-error @below {{library 'cudnn' needs rows that are aligned to 16 bytes, but dvalue has stride 54}}
func.func private @f() attributes {plan = #rt.attention<f16, [2, 2, 4, 8], [2, 1, 6, 8], 8 scale 0.5 : f64 causal false strides [64, 32, 8], [48, 0, 8], [48, 0, 8] -> [64, 32, 8] grad [64, 32, 8] -> [64, 32, 8], [48, 0, 8], [54, 0, 9] library "cudnn">}

// -----

// What the gradient of q, k and v in one buffer needs is allowed.
func.func private @f() attributes {plan = #rt.attention<bf16, [2, 2, 4, 8], [2, 2, 4, 8], 8 scale 0.5 : f64 causal true strides [192, 8, 48], [192, 8, 48], [192, 8, 48] -> [64, 8, 16] grad [64, 8, 16] -> [192, 8, 48], [192, 8, 48], [192, 8, 48] library "cudnn">}
