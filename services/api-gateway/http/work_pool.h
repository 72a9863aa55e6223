// Threads for work that would hold up the event loop: inflating, parsing and serializing large
// bodies.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstddef>
#include <utility>

namespace lathe::gateway {

namespace asio = boost::asio;

// Work on smaller bodies takes less time than a change of threads is worth.
inline constexpr size_t kLargeBodyBytes = 256 << 10;

// Its queue is bounded by the byte budget, because every item belongs to a request that has
// reserved its memory.
class WorkPool {
 public:
  WorkPool() : pool_(kNumThreads) {}
  ~WorkPool() { pool_.join(); }

  // Runs `work` on a thread of the pool, also after it has waited for something. Resumes the caller
  // on its own executor. `work` is a named variable of the caller, for the same reason as in
  // EngineClient::Call.
  template <typename T>
  asio::awaitable<T> Run(asio::awaitable<T>&& work) {
    co_return co_await asio::co_spawn(pool_, std::move(work), asio::use_awaitable);
  }

 private:
  static constexpr size_t kNumThreads = 2;

  asio::thread_pool pool_;
};

}  // namespace lathe::gateway
