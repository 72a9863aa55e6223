// Announces to the thread sanitizer what gRPC promises about its callbacks. The system's gRPC is
// compiled without the sanitizer and orders threads by atomics, which the sanitizer cannot see.
//
// 1. What a thread did before it started a batch happens before the callback of that batch.
// 2. What the callbacks of a call did happens before the destruction of its server or channel ends.
//
// These definitions precede the shared library's and call them.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdlib>

#include <grpcpp/support/callback_common.h>

namespace {

using grpc::internal::CallbackWithStatusTag;
using grpc::internal::CallbackWithSuccessTag;

// Returns the library's function of that name.
template <typename Function>
Function* LibraryFunction(const char* name) {
  void* const next = dlsym(RTLD_NEXT, name);
  if (next == nullptr) std::abort();
  return reinterpret_cast<Function*>(next);
}

template <typename Tag>
void AcquireAndRun(grpc_completion_queue_functor* tag, int ok) {
  __tsan_acquire(tag);
  Tag::StaticRun(tag, ok);
}

// Has `tag` call AcquireAndRun if it is one of a callback. Tags of completion queues are others.
// StaticRun is private: this file is compiled without access control.
void Announce(void* tag) {
  auto& run = static_cast<grpc_completion_queue_functor*>(tag)->functor_run;
  if (run == &CallbackWithSuccessTag::StaticRun) run = &AcquireAndRun<CallbackWithSuccessTag>;
  if (run == &CallbackWithStatusTag::StaticRun) run = &AcquireAndRun<CallbackWithStatusTag>;
  __tsan_release(tag);
}

// Stands for everything that was done with calls before gRPC released them.
char released_calls;

}  // namespace

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t nops, void* tag,
                                      void* reserved) {
  static const auto library = LibraryFunction<decltype(grpc_call_start_batch)>(__func__);
  if (tag != nullptr) Announce(tag);
  return library(call, ops, nops, tag, reserved);
}

void grpc_call_unref(grpc_call* call) {
  static const auto library = LibraryFunction<decltype(grpc_call_unref)>(__func__);
  __tsan_release(&released_calls);
  library(call);
}

void grpc_server_destroy(grpc_server* server) {
  static const auto library = LibraryFunction<decltype(grpc_server_destroy)>(__func__);
  library(server);
  __tsan_acquire(&released_calls);
}

void grpc_channel_destroy(grpc_channel* channel) {
  static const auto library = LibraryFunction<decltype(grpc_channel_destroy)>(__func__);
  library(channel);
  __tsan_acquire(&released_calls);
}

}  // extern "C"
