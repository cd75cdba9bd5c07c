// SIGTERM and SIGINT as a request to stop: batch systems send them before they
// kill a job. The loop ends after its current step, as if it were the last, so
// that --save has something to write.
#pragma once

namespace fsdpc::runtime {

// From now on the first SIGTERM or SIGINT is only remembered, and a second one
// ends the process at once. A signal that the process was started to ignore
// stays ignored. SIGPIPE is ignored too: someone who stops watching a run must
// not end it.
void catchStopSignals();

// Returns the remembered signal, or 0.
int stopSignal();

// "SIGTERM" or "SIGINT".
const char *nameOfSignal(int signal);

} // namespace fsdpc::runtime
