// A hook on the reduction as a user writes it: --reduce-hook=hooks.mlir:@halved. The
// function is written for one element and inlined for gradients of every shape.
func.func @halved(%gradient: tensor<1xf32>) -> tensor<1xf32> {
  %half = nn.constant dense<0.5> : tensor<1xf32>
  %least = nn.constant dense<-1.0> : tensor<1xf32>
  %small = nn.mul %gradient, %half : tensor<1xf32>
  %bounded = nn.maximum %small, %least : tensor<1xf32>
  return %bounded : tensor<1xf32>
}
