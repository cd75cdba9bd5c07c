// The size of kernels is bounded.
// RUN: fsdpc-opt %s --outline-kernels | FileCheck %s

// 65 ops in a row are one more than a kernel has.
// CHECK-LABEL: func.func @microbatch
// CHECK-NEXT: %[[A:.*]] = nn.launch @[[FIRST:.*]](%arg0)
// CHECK-NEXT: %[[B:.*]] = nn.launch @[[SECOND:.*]](%[[A]])
// CHECK-NEXT: nn.matmul %[[B]]
// CHECK: func.func private @[[FIRST]]
// CHECK-COUNT-64: nn.exp
// CHECK-NEXT: return
// CHECK: func.func private @[[SECOND]]
// CHECK-NEXT: nn.exp
// CHECK-NEXT: return
module {
  func.func @microbatch(%x: tensor<4x4xf32> {fsdp.input = "x"}) {
    %1 = nn.exp %x : tensor<4x4xf32>
    %2 = nn.exp %1 : tensor<4x4xf32>
    %3 = nn.exp %2 : tensor<4x4xf32>
    %4 = nn.exp %3 : tensor<4x4xf32>
    %5 = nn.exp %4 : tensor<4x4xf32>
    %6 = nn.exp %5 : tensor<4x4xf32>
    %7 = nn.exp %6 : tensor<4x4xf32>
    %8 = nn.exp %7 : tensor<4x4xf32>
    %9 = nn.exp %8 : tensor<4x4xf32>
    %10 = nn.exp %9 : tensor<4x4xf32>
    %11 = nn.exp %10 : tensor<4x4xf32>
    %12 = nn.exp %11 : tensor<4x4xf32>
    %13 = nn.exp %12 : tensor<4x4xf32>
    %14 = nn.exp %13 : tensor<4x4xf32>
    %15 = nn.exp %14 : tensor<4x4xf32>
    %16 = nn.exp %15 : tensor<4x4xf32>
    %17 = nn.exp %16 : tensor<4x4xf32>
    %18 = nn.exp %17 : tensor<4x4xf32>
    %19 = nn.exp %18 : tensor<4x4xf32>
    %20 = nn.exp %19 : tensor<4x4xf32>
    %21 = nn.exp %20 : tensor<4x4xf32>
    %22 = nn.exp %21 : tensor<4x4xf32>
    %23 = nn.exp %22 : tensor<4x4xf32>
    %24 = nn.exp %23 : tensor<4x4xf32>
    %25 = nn.exp %24 : tensor<4x4xf32>
    %26 = nn.exp %25 : tensor<4x4xf32>
    %27 = nn.exp %26 : tensor<4x4xf32>
    %28 = nn.exp %27 : tensor<4x4xf32>
    %29 = nn.exp %28 : tensor<4x4xf32>
    %30 = nn.exp %29 : tensor<4x4xf32>
    %31 = nn.exp %30 : tensor<4x4xf32>
    %32 = nn.exp %31 : tensor<4x4xf32>
    %33 = nn.exp %32 : tensor<4x4xf32>
    %34 = nn.exp %33 : tensor<4x4xf32>
    %35 = nn.exp %34 : tensor<4x4xf32>
    %36 = nn.exp %35 : tensor<4x4xf32>
    %37 = nn.exp %36 : tensor<4x4xf32>
    %38 = nn.exp %37 : tensor<4x4xf32>
    %39 = nn.exp %38 : tensor<4x4xf32>
    %40 = nn.exp %39 : tensor<4x4xf32>
    %41 = nn.exp %40 : tensor<4x4xf32>
    %42 = nn.exp %41 : tensor<4x4xf32>
    %43 = nn.exp %42 : tensor<4x4xf32>
    %44 = nn.exp %43 : tensor<4x4xf32>
    %45 = nn.exp %44 : tensor<4x4xf32>
    %46 = nn.exp %45 : tensor<4x4xf32>
    %47 = nn.exp %46 : tensor<4x4xf32>
    %48 = nn.exp %47 : tensor<4x4xf32>
    %49 = nn.exp %48 : tensor<4x4xf32>
    %50 = nn.exp %49 : tensor<4x4xf32>
    %51 = nn.exp %50 : tensor<4x4xf32>
    %52 = nn.exp %51 : tensor<4x4xf32>
    %53 = nn.exp %52 : tensor<4x4xf32>
    %54 = nn.exp %53 : tensor<4x4xf32>
    %55 = nn.exp %54 : tensor<4x4xf32>
    %56 = nn.exp %55 : tensor<4x4xf32>
    %57 = nn.exp %56 : tensor<4x4xf32>
    %58 = nn.exp %57 : tensor<4x4xf32>
    %59 = nn.exp %58 : tensor<4x4xf32>
    %60 = nn.exp %59 : tensor<4x4xf32>
    %61 = nn.exp %60 : tensor<4x4xf32>
    %62 = nn.exp %61 : tensor<4x4xf32>
    %63 = nn.exp %62 : tensor<4x4xf32>
    %64 = nn.exp %63 : tensor<4x4xf32>
    %65 = nn.exp %64 : tensor<4x4xf32>
    %m = nn.matmul %65, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
    return
  }
}
