// RUN: fsdpc-opt %s --verify-diagnostics --split-input-file

// The results of a fetch have the types of the values that were offloaded.
func.func @f(%x: tensor<8xf32>) {
  %held = fsdp.offload %x : tensor<8xf32>
  // expected-error @below {{has other types than the values that were offloaded}}
  %a = fsdp.fetch %held : tensor<4xf32>
  return
}

// -----

// Also when both are split.
func.func @f(%x: tensor<8xf32>) {
  %s = fsdp.offload_start %x : tensor<8xf32>
  %held = fsdp.offload_wait %s
  %t = fsdp.fetch_start %held
  // expected-error @below {{has other types than the values that were offloaded}}
  %a, %b = fsdp.fetch_wait %t : tensor<8xf32>, tensor<8xf32>
  return
}

// -----

// Each value has a place.
func.func @f(%x: tensor<8xf32>) {
  // expected-error @below {{has 2 places for 1 values}}
  %s = fsdp.offload_start %x {places = array<i64: 0, 64>} : tensor<8xf32>
  %held = fsdp.offload_wait %s
  return
}

// -----

// Nothing is fetched before it is known to be in the file.
func.func @f(%x: tensor<8xf32>) {
  %held = fsdp.offload %x : tensor<8xf32>
  // expected-error @below {{fetches before an offload_wait}}
  %t = fsdp.fetch_start %held
  return
}

// -----

// The tokens of other collectives are of no use.
func.func @f(%x: tensor<8xf32>) {
  %s = fsdp.offload_start %x : tensor<8xf32>
  // expected-error @below {{waits for a token that fetch_start did not produce}}
  %a = fsdp.fetch_wait %s : tensor<8xf32>
  return
}

// -----

func.func @f(%held: !fsdp.offloaded) {
  // expected-error @below {{fetches what no offload has written}}
  %a = fsdp.fetch %held : tensor<8xf32>
  return
}
