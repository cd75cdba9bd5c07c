// RUN: fsdpc-opt %s --form-units | FileCheck %s

// Numbered siblings of one class are units. The embedding is large compared
// with them: it becomes a unit with its module, in which the tied head reads it
// again. The rest (ln_f) is the root. Units are in order of first use.
// CHECK-DAG: fsdp.parameter @lm_head.weight : tensor<64x8xf32> trainable unit @wte
// CHECK-DAG: fsdp.parameter @h.0.weight : tensor<8x8xf32> trainable unit @h.0
// CHECK-DAG: fsdp.parameter @h.1.weight : tensor<8x8xf32> trainable unit @h.1
// CHECK-DAG: fsdp.parameter @ln_f.weight : tensor<8xf32> trainable unit @root
fsdp.parameter @lm_head.weight : tensor<64x8xf32> trainable {aliases = ["wte.weight"]}
fsdp.parameter @h.0.weight : tensor<8x8xf32> trainable
fsdp.parameter @h.1.weight : tensor<8x8xf32> trainable
fsdp.parameter @ln_f.weight : tensor<8xf32> trainable
// CHECK: fsdp.unit @wte {module_class = "Embedding", scope = "wte"}
// CHECK-NEXT: fsdp.unit @h.0 {module_class = "Block", scope = "h.0"}
// CHECK-NEXT: fsdp.unit @h.1
// CHECK-NEXT: fsdp.unit @root

// CHECK-LABEL: func.func @microbatch
func.func @microbatch(%ids: tensor<4xi64>, %targets: tensor<4xi64>) {
  %w0 = fsdp.load @h.0.weight : tensor<8x8xf32>
  %wte = fsdp.load @lm_head.weight : tensor<64x8xf32>
  // CHECK: fsdp.load @lm_head.weight {fsdp.unit = @wte}
  // CHECK-NEXT: nn.embedding {{.*}}fsdp.unit = @wte
  %e = nn.embedding %wte, %ids {nn.modules = #nn.modules<"": "GPT", "wte": "Embedding", "embedding": "aten.embedding.default">} : tensor<64x8xf32>, tensor<4xi64> -> tensor<4x8xf32>
  // An op of the root that reads no weight joins the op before it.
  // CHECK-NEXT: nn.tanh {{.*}}fsdp.unit = @wte
  %x0 = nn.tanh %e {nn.modules = #nn.modules<"": "GPT", "tanh": "aten.tanh.default">} : tensor<4x8xf32>
  // A load precedes its first use.
  // CHECK-NEXT: fsdp.load @h.0.weight {fsdp.unit = @h.0}
  // CHECK-NEXT: nn.matmul {{.*}}fsdp.unit = @h.0
  %x1 = nn.matmul %x0, %w0 {nn.modules = #nn.modules<"": "GPT", "h.0": "Block", "h.0.fc": "Linear">} : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
  %w1 = fsdp.load @h.1.weight : tensor<8x8xf32>
  // CHECK: nn.matmul {{.*}}fsdp.unit = @h.1
  %x2 = nn.matmul %x1, %w1 {nn.modules = #nn.modules<"": "GPT", "h.1": "Block", "h.1.fc": "Linear">} : tensor<4x8xf32>, tensor<8x8xf32> -> tensor<4x8xf32>
  %n = fsdp.load @ln_f.weight : tensor<8xf32>
  // CHECK: nn.rms_norm {{.*}}fsdp.unit = @root
  %x3, %rstd = nn.rms_norm %x2 weight %n {epsilon = 1.0e-5 : f64, nn.modules = #nn.modules<"": "GPT", "ln_f": "LayerNorm">} : tensor<4x8xf32>, weight tensor<8xf32> -> tensor<4x8xf32>, tensor<4xf32>
  // CHECK: nn.matmul {{.*}}fsdp.unit = @wte
  %logits = nn.matmul %x3, %wte {transpose_b, nn.modules = #nn.modules<"": "GPT", "lm_head": "Linear">} : tensor<4x8xf32>, tensor<64x8xf32> -> tensor<4x64xf32>
  // The loss has no module; it joins the head.
  // CHECK: nn.cross_entropy {{.*}}fsdp.unit = @wte
  %loss, %lse, %valid = nn.cross_entropy mean %logits, %targets : tensor<4x64xf32>, tensor<4xi64> -> tensor<f32>, tensor<4xf32>, tensor<f32>
  // CHECK: fsdp.report_loss {{.*}}fsdp.unit = @wte
  fsdp.report_loss %loss : tensor<f32>
  return
}
