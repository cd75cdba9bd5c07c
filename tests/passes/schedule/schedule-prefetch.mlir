// Two units, forward and backward, with each prefetch rule. An op takes 100 µs,
// a collective 53 µs. verify-schedule accepts every result.
// RUN: sed 's/OPTIONS/prefetch = "none"/' %s | fsdpc-opt --schedule-prefetch --verify-schedule | FileCheck %s --check-prefix=NONE
// RUN: sed 's/OPTIONS/prefetch = "post"/' %s | fsdpc-opt --schedule-prefetch --verify-schedule | FileCheck %s --check-prefix=POST
// RUN: sed 's/OPTIONS/prefetch = "pre"/' %s | fsdpc-opt --schedule-prefetch --verify-schedule | FileCheck %s --check-prefix=PRE
// RUN: sed 's/OPTIONS/prefetch = "auto", target = "cuda"/' %s | fsdpc-opt --schedule-prefetch --verify-schedule | FileCheck %s --check-prefix=AUTO
// RUN: sed 's/OPTIONS/prefetch = "auto"/' %s | fsdpc-opt --schedule-prefetch --verify-schedule | FileCheck %s --check-prefix=CORE
// RUN: sed 's/OPTIONS/prefetch = "auto", "plan-threads" = 8 : i64/' %s | fsdpc-opt --schedule-prefetch --verify-schedule | FileCheck %s --check-prefix=AUTO
// RUN: sed 's/OPTIONS/prefetch = "pre", "limit-all-gathers" = 1 : i64/' %s | fsdpc-opt --schedule-prefetch --verify-schedule | FileCheck %s --check-prefix=LIMIT

// A hard cap is kept, even if all of the communication is then exposed; below
// what is needed without any prefetch, the compile fails and says what is large. One rank holds masters and gradients (32 KiB each), states (64 KiB), the
// input twice (4 KiB), 37 KiB of arena, and what oneDNN takes for its products.
// RUN: sed 's/OPTIONS/"plan-ranks" = 1 : i64, "max-ranks" = 8 : i64, "memory-limit" = "200K"/' %s | fsdpc-opt --schedule-prefetch --verify-schedule -o %t
// RUN: sed 's/OPTIONS/"plan-ranks" = 1 : i64, "max-ranks" = 8 : i64, "memory-limit" = "160K", recompute = "cheap"/' %s | not fsdpc-opt --schedule-prefetch 2>&1 | FileCheck %s --check-prefix=OVER
// OVER: error: planned peak of {{[0-9]+}} bytes per rank on 1 rank exceeds --memory-limit of 163840 bytes; largest: optimizer (65536), parameters (32768), gradients (32768); keep fewer activations with --recompute=auto
// The windows of communication grow with the ranks, so fewer take less here; a GPU has none, so more do.
// RUN: sed 's/OPTIONS/"plan-ranks" = 4 : i64, "max-ranks" = 8 : i64, "memory-limit" = "100K"/' %s | not fsdpc-opt --schedule-prefetch 2>&1 | FileCheck %s --check-prefix=FEWER
// FEWER: largest: communication ({{[0-9]+}}), {{.*}}; decrease --plan-ranks (2 takes {{[0-9]+}} bytes less){{$}}
// RUN: sed 's/OPTIONS/target = "cuda", "plan-ranks" = 4 : i64, "max-ranks" = 8 : i64, "memory-limit" = "100K"/' %s | not fsdpc-opt --schedule-prefetch 2>&1 | FileCheck %s --check-prefix=MORE
// MORE: increase --plan-ranks (8 takes {{[0-9]+}} bytes less){{$}}

// Nothing overlaps: each start is directly before its wait.
// NONE: fsdp.enter @a
// NONE-NEXT: fsdp.all_gather_start [@a.flat] {fsdp.bytes = 16384 : i64, fsdp.cost_us = 5.28
// NONE-NEXT: fsdp.all_gather_wait {{.*}} {fsdp.exposed_us = 5.28
// NONE: fsdp.free
// NONE: fsdp.all_gather_start [@b.flat]
// NONE-NEXT: fsdp.all_gather_wait {{.*}} {fsdp.exposed_us = 5.28
// NONE: fsdp.reduce_scatter_start [@b.flat]
// NONE-NEXT: fsdp.reduce_scatter_wait

// Started after the compute of unit a, the gather of b overlaps nothing here,
// because only a's free follows. The reduction overlaps the rest of the
// backward.
// POST: fsdp.free
// POST: fsdp.all_gather_start [@b.flat]
// POST-NEXT: fsdp.enter @b
// POST: fsdp.reduce_scatter_start [@b.flat]
// POST-NEXT: nn.matmul
// POST: fsdp.reduce_scatter_wait {{.*}} {fsdp.exposed_us = 0.0

// Started before the compute of unit a, the gather of b is hidden behind it.
// PRE: fsdp.all_gather_start [@a.flat]
// PRE-NEXT: fsdp.all_gather_start [@b.flat]
// PRE-NEXT: fsdp.enter @a
// PRE: fsdp.free
// PRE: fsdp.enter @b
// PRE-NEXT: fsdp.all_gather_wait {{.*}} {fsdp.exposed_us = 0.0

// A single rank exchanges nothing, but a gather still copies or narrows the
// masters, and a reduction copies the gradients to the sums.
// RUN: sed 's/OPTIONS/"plan-ranks" = 1 : i64, "max-ranks" = 8 : i64, prefetch = "none"/' %s | fsdpc-opt --schedule-prefetch --verify-schedule | FileCheck %s --check-prefix=ALONE
// ALONE: fsdp.all_gather_start [@a.flat] {fsdp.bytes = 16384 : i64, fsdp.cost_us = 3.277
// ALONE: fsdp.reduce_scatter_start [@b.flat], {{.*}} {fsdp.bytes = 16384 : i64, fsdp.cost_us = 3.277
// RUN: sed 's/OPTIONS/"plan-ranks" = 1 : i64, "max-ranks" = 8 : i64, prefetch = "none", target = "cuda"/' %s | fsdpc-opt --schedule-prefetch --verify-schedule | FileCheck %s --check-prefix=CAST
// CAST: fsdp.all_gather_start [@a.flat] {fsdp.bytes = 16384 : i64, fsdp.cost_us = {{[1-9]}}

// The solver finds the same where communication leaves compute alone, or takes
// one of its cores.
// AUTO: fsdp.all_gather_start [@b.flat]
// AUTO: fsdp.free
// AUTO: fsdp.all_gather_wait {{.*}} {fsdp.exposed_us = 0.0
// AUTO: fsdp.reduce_scatter_wait {{.*}} {fsdp.exposed_us = 0.0

// On one core, a collective beside compute costs more than it hides, so nothing
// overlaps.
// CORE: fsdp.all_gather_wait {{.*}} {fsdp.exposed_us = 5.28
// CORE: fsdp.all_gather_start [@b.flat]
// CORE: fsdp.all_gather_wait {{.*}} {fsdp.exposed_us = 5.28
// CORE: fsdp.reduce_scatter_wait {{.*}} {fsdp.exposed_us = 5.28
// CORE: fsdp.reduce_scatter_wait {{.*}} {fsdp.exposed_us = 5.28

// One buffer at a time: b's gather starts when a's is freed.
// LIMIT: fsdp.all_gather_start [@a.flat]
// LIMIT: fsdp.free
// LIMIT: fsdp.all_gather_start [@b.flat]
// LIMIT: fsdp.free
module attributes {fsdp.options = {OPTIONS}} {
  fsdp.parameter @w0 : tensor<64x64xf32> trainable unit @a
  fsdp.parameter @w1 : tensor<64x64xf32> trainable unit @b
  fsdp.unit @a
  fsdp.unit @b
  fsdp.layout @a.flat of @a trainable elements 4096 : f32 states 2 {members = [#fsdp.member<@w0[0, 4096] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  fsdp.layout @b.flat of @b trainable elements 4096 : f32 states 2 {members = [#fsdp.member<@w1[0, 4096] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%x: tensor<8x64xf32> {fsdp.input = "x"}) {
    fsdp.enter @a
    %a = fsdp.all_gather [@a.flat] {fsdp.unit = @a} : tensor<4096xf32>
    %w0 = fsdp.view %a[@w0 at 0] : tensor<4096xf32> -> tensor<64x64xf32>
    %h = nn.matmul %x, %w0 {fsdp.cost_us = 100.0 : f64, fsdp.unit = @a} : tensor<8x64xf32>, tensor<64x64xf32> -> tensor<8x64xf32>
    fsdp.free %a : tensor<4096xf32>
    fsdp.exit @a
    fsdp.enter @b
    %b = fsdp.all_gather [@b.flat] : tensor<4096xf32>
    %w1 = fsdp.view %b[@w1 at 0] : tensor<4096xf32> -> tensor<64x64xf32>
    %y = nn.matmul %h, %w1 {fsdp.cost_us = 100.0 : f64} : tensor<8x64xf32>, tensor<64x64xf32> -> tensor<8x64xf32>
    fsdp.exit @b
    fsdp.enter @b backward
    %db = nn.matmul %h, %y {fsdp.cost_us = 100.0 : f64, transpose_a} : tensor<8x64xf32>, tensor<8x64xf32> -> tensor<64x64xf32>
    %gb = fsdp.pack @b.flat(%db) : (tensor<64x64xf32>) -> tensor<4096xf32>
    fsdp.reduce_scatter [@b.flat], %gb : tensor<4096xf32>
    %dh = nn.matmul %y, %w1 {fsdp.cost_us = 100.0 : f64, transpose_b} : tensor<8x64xf32>, tensor<64x64xf32> -> tensor<8x64xf32>
    fsdp.free %b : tensor<4096xf32>
    fsdp.exit @b backward
    fsdp.enter @a backward
    %da = nn.matmul %x, %dh {fsdp.cost_us = 100.0 : f64, transpose_a} : tensor<8x64xf32>, tensor<8x64xf32> -> tensor<64x64xf32>
    %ga = fsdp.pack @a.flat(%da) : (tensor<64x64xf32>) -> tensor<4096xf32>
    fsdp.reduce_scatter [@a.flat], %ga : tensor<4096xf32>
    fsdp.exit @a backward
    return
  }
  func.func @update() { return }
}
