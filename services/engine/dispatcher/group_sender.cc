#include "services/engine/dispatcher/group_sender.h"

#include <optional>

namespace lathe::engine {

GroupSender::GroupSender(size_t max_tasks)
    : tasks_(max_tasks), thread_("engine-send", [this] { Run(); }) {}

GroupSender::~GroupSender() { Close(); }

void GroupSender::Run() {
  while (const std::optional<Task> task = tasks_.Pop()) {
    if (tasks_.closed()) break;
    (*task)();
  }
  has_ended_ = true;
}

}  // namespace lathe::engine
