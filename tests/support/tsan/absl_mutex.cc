// Announces absl::Mutex and absl::CondVar operations to the thread sanitizer. The system's Abseil
// is compiled without the sanitizer, which would therefore see no locks in Lathe. These definitions
// precede the shared library's and call them. Between a `pre` and its `post` annotation, the
// sanitizer ignores what the thread does.
//
// Conditional reader locks are missing because Lathe does not use them. The destructor is missing
// because the library's own must run; the sanitizer drops the locks in freed memory.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdlib>
#include <type_traits>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#pragma GCC diagnostic ignored "-Wpmf-conversions"

namespace {

// Returns the library's function with the same name as `ours`.
template <typename Function>
Function LibraryFunction(void* ours) {
  Dl_info info;
  if (dladdr(ours, &info) == 0 || info.dli_sname == nullptr) std::abort();
  void* const next = dlsym(RTLD_NEXT, info.dli_sname);
  if (next == nullptr || next == ours) std::abort();
  return reinterpret_cast<Function>(next);
}

// Marks a call as outermost. The library's functions call each other, and only the outermost call
// is announced.
// Aligned as pointers are: mold 1.10 may lay out a program so that it does not load if all its
// thread-local data is aligned less.
alignas(void*) thread_local bool is_inside = false;
struct Inside {
  const bool is_outermost = !is_inside;
  Inside() { is_inside = true; }
  ~Inside() {
    if (is_outermost) is_inside = false;
  }
};

constexpr unsigned kWrite = 0;
constexpr unsigned kRead = __tsan_mutex_read_lock;

template <typename Call>
void AnnotateLock(void* mutex, unsigned flags, const Call& call) {
  const Inside inside;
  if (!inside.is_outermost) return call();
  __tsan_mutex_pre_lock(mutex, flags);
  call();
  __tsan_mutex_post_lock(mutex, flags, 0);
}

template <typename Call>
bool AnnotateTryLock(void* mutex, unsigned flags, const Call& call) {
  const Inside inside;
  if (!inside.is_outermost) return call();
  flags |= __tsan_mutex_try_lock;
  __tsan_mutex_pre_lock(mutex, flags);
  const bool is_locked = call();
  __tsan_mutex_post_lock(mutex, is_locked ? flags : flags | __tsan_mutex_try_lock_failed, 0);
  return is_locked;
}

template <typename Call>
void AnnotateUnlock(void* mutex, unsigned flags, const Call& call) {
  const Inside inside;
  if (!inside.is_outermost) return call();
  __tsan_mutex_pre_unlock(mutex, flags);
  call();
  __tsan_mutex_post_unlock(mutex, flags);
}

// Announces a wait: the thread holds the lock before and after it, and releases it meanwhile.
template <typename Call>
auto AnnotateWait(void* mutex, const Call& call) {
  const Inside inside;
  if (!inside.is_outermost) return call();
  __tsan_mutex_pre_unlock(mutex, kWrite);
  __tsan_mutex_post_unlock(mutex, kWrite);
  __tsan_mutex_pre_lock(mutex, kWrite);
  if constexpr (std::is_void_v<decltype(call())>) {
    call();
    __tsan_mutex_post_lock(mutex, kWrite, 0);
  } else {
    const auto result = call();
    __tsan_mutex_post_lock(mutex, kWrite, 0);
    return result;
  }
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

// Defines `library`, which calls the library's Class::Name with the arguments. A member function's
// address is cast to a function that takes the object first.
#define LATHE_FORWARD(Class, Name, Result, Types, Arguments)                            \
  static const auto function = LibraryFunction<Result(*) Types>((void*)(&Class::Name)); \
  const auto library = [&]() -> Result { return function Arguments; }

void Mutex::Lock() {
  LATHE_FORWARD(Mutex, Lock, void, (Mutex*), (this));
  AnnotateLock(this, kWrite, library);
}
void Mutex::ReaderLock() {
  LATHE_FORWARD(Mutex, ReaderLock, void, (Mutex*), (this));
  AnnotateLock(this, kRead, library);
}
bool Mutex::TryLock() {
  LATHE_FORWARD(Mutex, TryLock, bool, (Mutex*), (this));
  return AnnotateTryLock(this, kWrite, library);
}
bool Mutex::ReaderTryLock() {
  LATHE_FORWARD(Mutex, ReaderTryLock, bool, (Mutex*), (this));
  return AnnotateTryLock(this, kRead, library);
}
void Mutex::Unlock() {
  LATHE_FORWARD(Mutex, Unlock, void, (Mutex*), (this));
  AnnotateUnlock(this, kWrite, library);
}
void Mutex::ReaderUnlock() {
  LATHE_FORWARD(Mutex, ReaderUnlock, void, (Mutex*), (this));
  AnnotateUnlock(this, kRead, library);
}
void Mutex::Await(const Condition& condition) {
  LATHE_FORWARD(Mutex, Await, void, (Mutex*, const Condition&), (this, condition));
  AnnotateWait(this, library);
}
bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  LATHE_FORWARD(Mutex, AwaitWithTimeout, bool, (Mutex*, const Condition&, Duration),
                (this, condition, timeout));
  return AnnotateWait(this, library);
}
bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  LATHE_FORWARD(Mutex, AwaitWithDeadline, bool, (Mutex*, const Condition&, Time),
                (this, condition, deadline));
  return AnnotateWait(this, library);
}
void Mutex::LockWhen(const Condition& condition) {
  LATHE_FORWARD(Mutex, LockWhen, void, (Mutex*, const Condition&), (this, condition));
  AnnotateLock(this, kWrite, library);
}
bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  LATHE_FORWARD(Mutex, LockWhenWithTimeout, bool, (Mutex*, const Condition&, Duration),
                (this, condition, timeout));
  bool result = false;
  AnnotateLock(this, kWrite, [&] { result = library(); });
  return result;
}
bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  LATHE_FORWARD(Mutex, LockWhenWithDeadline, bool, (Mutex*, const Condition&, Time),
                (this, condition, deadline));
  bool result = false;
  AnnotateLock(this, kWrite, [&] { result = library(); });
  return result;
}

void CondVar::Wait(Mutex* mutex) {
  LATHE_FORWARD(CondVar, Wait, void, (CondVar*, Mutex*), (this, mutex));
  AnnotateWait(mutex, library);
}
bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  LATHE_FORWARD(CondVar, WaitWithTimeout, bool, (CondVar*, Mutex*, Duration),
                (this, mutex, timeout));
  return AnnotateWait(mutex, library);
}
bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  LATHE_FORWARD(CondVar, WaitWithDeadline, bool, (CondVar*, Mutex*, Time), (this, mutex, deadline));
  return AnnotateWait(mutex, library);
}

ABSL_NAMESPACE_END
}  // namespace absl
