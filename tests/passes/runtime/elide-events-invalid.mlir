// A wait for an event that nothing records before it has no number that would
// not make it another event.
// RUN: fsdpc-opt %s --elide-events --split-input-file --verify-diagnostics

module {
  func.func @microbatch() {
    %0 = rt.pointer arena + 0 bytes 64
    rt.all_gather [@a] -> %0
    rt.event_record gather 0
    rt.event_wait compute 0
    // expected-error @+1 {{waits for event 3, which nothing records before it}}
    rt.event_wait reduce 3
    return
  }
}
