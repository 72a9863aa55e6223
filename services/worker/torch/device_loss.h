// The loss of a GPU. After an illegal address, an assert, an ECC error or an Xid, each call to the
// GPU fails until the process ends. Does not include torch.
#pragma once

#include <exception>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace lathe::worker {

// Tells a lost GPU from other errors, and acts on it. There is one for the process, because any
// thread may see the error, whichever object it works for.
struct DeviceLossHandling {
  // Returns the error of a call to the GPU that changes nothing.
  std::function<absl::Status()> probe;
  // Called on the thread that saw the loss, possibly on several threads. It must not return in a
  // program that serves requests: they would fail instead of being run again by another process.
  std::function<void(const std::string& error)> on_lost;
};

// Replaces the handling and returns the old one. By default the GPU that this process uses is
// probed, and a loss has no effect. Not thread-safe: call it before threads start.
DeviceLossHandling SetDeviceLossHandling(DeviceLossHandling handling);

// Asks the GPU of this process. OK if it has used none yet.
absl::Status ProbeGpu();

// Calls on_lost if `error` shows that the GPU is lost. Running out of memory is no loss.
void CheckForDeviceLoss(const std::exception& error);

}  // namespace lathe::worker
