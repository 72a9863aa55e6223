// Hot path: every sum of a decode pass on one host calls Enter and Await.
#include "services/worker/collectives/transports/shared_segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "libs/common/status_macros.h"
#include "libs/common/time/clock.h"

namespace lathe::worker {
namespace {

constexpr size_t kPage = 4096;
// Number of processor pauses, about 50 us, before a wait sleeps. Ranks usually arrive shortly after
// each other, and waking takes about as long.
constexpr int kSpins = 2000;
// Length of one sleep, after which the waiting rank checks whether the other one lives.
constexpr absl::Duration kSleep = absl::Milliseconds(10);
// The same for a rank whose end wakes the sleeper.
constexpr absl::Duration kWatchedSleep = absl::Seconds(10);

// Set in a rank's round once the rank is gone, so that a rank about to sleep on it does not. Round
// numbers use the bits below it and wrap around there.
constexpr uint32_t kGone = uint32_t{1} << 31;

static_assert(std::atomic<uint32_t>::is_always_lock_free);

long Futex(const std::atomic<uint32_t>& word, int operation, uint32_t value,
           const timespec* timeout) {
  return syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

absl::Status Errno(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

constexpr char kName[] = "lathe-ranks";

// Returns a descriptor, for reading and writing, of the file that `path` names. Unavailable unless
// Create made that file for this user. Any process that reaches the store's port may have written
// `path`. Opening a file may have side effects, so the file is checked first.
absl::StatusOr<int> OpenMemory(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    return absl::UnavailableError(absl::StrCat("'", path, "' is no memory of ranks: ", why));
  };
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  int pid = 0, number = 0;
  if (parts.size() != 5 || !parts[0].empty() || parts[1] != "proc" || parts[3] != "fd" ||
      !absl::SimpleAtoi(parts[2], &pid) || !absl::SimpleAtoi(parts[4], &number) || pid <= 0 ||
      number < 0) {
    return refuse("it is no descriptor of a process");
  }
  const int found = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (found < 0) return Errno("cannot open shared memory");
  const absl::Cleanup close_found = [&] { close(found); };
  const std::string own_path = absl::StrCat("/proc/self/fd/", found);
  char target[PATH_MAX] = {};
  if (readlink(own_path.c_str(), target, sizeof(target) - 1) < 0) return Errno("readlink");
  if (target != absl::StrCat("/memfd:", kName, " (deleted)")) {
    return refuse(absl::StrCat("it is ", target));
  }
  struct stat about {};
  if (fstat(found, &about) != 0) return Errno("fstat");
  if (!S_ISREG(about.st_mode) || about.st_nlink != 0) return refuse("it is a file with a name");
  if (about.st_uid != geteuid()) {
    return refuse(absl::StrCat("it is of user ", about.st_uid, ", not of ", geteuid()));
  }
  const int fd = open(own_path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return Errno("cannot open shared memory");
  return fd;
}

// Returns the namespace in which process ids are valid; 0 if it cannot be determined.
uint64_t PidNamespace() {
  struct stat about {};
  return stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

uint64_t RandomNonce() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

struct flock LockOf(int rank, int16_t type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

// State of one rank, on its own cache lines.
struct alignas(128) SharedSegment::Control {
  uint64_t nonce = 0;  // set by rank 0 only
  uint64_t pid_namespace = 0;
  std::atomic<uint32_t> round{0};         // see kGone
  std::atomic<uint32_t> num_sleeping{0};  // ranks that wait for `round`
  int32_t pid = 0;
  RoundSignature signatures[2];  // by round modulo 2
};

size_t SharedSegment::SizeOf(int world) {
  static_assert(sizeof(Control) == 128 && sizeof(Control) <= kPage && kBufferBytes % kPage == 0);
  return static_cast<size_t>(world) * (kPage + 2 * kBufferBytes);
}

SharedSegment::Control& SharedSegment::control(int rank) const {
  return *reinterpret_cast<Control*>(memory_ + static_cast<size_t>(rank) * kPage);
}

std::byte* SharedSegment::buffer(int rank, int index) const {
  return memory_ + static_cast<size_t>(world_) * kPage +
         static_cast<size_t>(2 * rank + index) * kBufferBytes;
}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Create(int world) {
  const int fd = memfd_create(kName, MFD_CLOEXEC);
  if (fd < 0) return Errno("memfd_create");
  std::unique_ptr<SharedSegment> segment(new SharedSegment(fd, 0, world, RandomNonce()));
  // Allocates the pages too: a missing page would be a SIGBUS later.
  errno = posix_fallocate(fd, 0, static_cast<off_t>(SizeOf(world)));
  if (errno != 0) return Errno("no shared memory");
  RETURN_IF_ERROR(segment->Map());
  for (int rank = 0; rank < world; ++rank) new (&segment->control(rank)) Control;
  segment->control(0).nonce = segment->nonce_;
  RETURN_IF_ERROR(segment->Lock());
  return segment;
}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Open(const std::string& handle,
                                                                   int rank, int world) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(handle, ' ');
  ASSIGN_OR_RETURN(const int fd, OpenMemory(parts.first));
  std::unique_ptr<SharedSegment> segment(
      new SharedSegment(fd, rank, world, std::strtoull(parts.second.c_str(), nullptr, 10)));
  struct stat about {};
  if (fstat(fd, &about) != 0) return Errno("fstat");
  if (about.st_size != static_cast<off_t>(SizeOf(world))) {
    return absl::UnavailableError("the shared memory is another process's");
  }
  RETURN_IF_ERROR(segment->Map());
  if (segment->control(0).nonce != segment->nonce_) {
    return absl::UnavailableError("the shared memory is another process's");
  }
  RETURN_IF_ERROR(segment->Lock());
  return segment;
}

SharedSegment::SharedSegment(int fd, int rank, int world, uint64_t nonce)
    : fd_(fd),
      rank_(rank),
      world_(world),
      nonce_(nonce),
      has_own_core_(static_cast<int>(std::thread::hardware_concurrency()) >= world),
      is_watched_(world) {}

std::string SharedSegment::handle() const {
  return absl::StrFormat("/proc/%d/fd/%d %d", getpid(), fd_, nonce_);
}

SharedSegment::~SharedSegment() {
  watch_.reset();
  if (is_here_) Leave();
  if (memory_ != nullptr) munmap(memory_, SizeOf(world_));
  close(fd_);
}

absl::Status SharedSegment::Map() {
  void* memory = mmap(nullptr, SizeOf(world_), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) return Errno("mmap");
  memory_ = static_cast<std::byte*>(memory);
  return absl::OkStatus();
}

// The lock belongs to the open file, not to the process, because ranks may be threads in tests.
absl::Status SharedSegment::Lock() {
  struct flock lock = LockOf(rank_, F_WRLCK);
  if (fcntl(fd_, F_OFD_SETLK, &lock) != 0) return Errno("cannot lock shared memory");
  is_here_ = true;
  Control& own = control(rank_);
  own.pid = getpid();
  own.pid_namespace = PidNamespace();
  own.round.fetch_and(~kGone, std::memory_order_seq_cst);
  return absl::OkStatus();
}

void SharedSegment::Leave() {
  struct flock lock = LockOf(rank_, F_UNLCK);
  fcntl(fd_, F_OFD_SETLK, &lock);
  is_here_ = false;
  MarkGone(rank_);
}

void SharedSegment::WatchOthers() {
  watch_ = std::make_unique<ProcessWatch>([this](int rank) { MarkGone(rank); });
  for (int rank = 0; rank < world_; ++rank) is_watched_[rank] = rank != rank_ && Watch(rank);
  watch_->Start();
}

// If `rank` holds its lock now, it also held it when its pid was looked up. The pid then belonged
// to that rank, not to a later process of the same number.
bool SharedSegment::Watch(int rank) {
  const Control& other = control(rank);
  if (other.pid_namespace == 0 || other.pid_namespace != PidNamespace()) return false;
  if (other.pid == getpid()) return true;  // its thread leaves before the process ends
  return watch_->Add(rank, other.pid) && IsAlive(rank);
}

void SharedSegment::MarkGone(int rank) const {
  control(rank).round.fetch_or(kGone, std::memory_order_seq_cst);
  Futex(control(rank).round, FUTEX_WAKE, INT_MAX, nullptr);
}

bool SharedSegment::IsAlive(int rank) const {
  struct flock lock = LockOf(rank, F_WRLCK);
  return fcntl(fd_, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

const RoundSignature& SharedSegment::signature(int rank) const {
  return control(rank).signatures[round_ % 2];
}

void SharedSegment::Enter(const RoundSignature& signature) {
  ++round_;
  Control& own = control(rank_);
  own.signatures[round_ % 2] = signature;
  // Sequentially consistent with a sleeper's count and look, so one of the two sees the other.
  own.round.store((round_ & ~kGone) | (is_here_ ? 0 : kGone), std::memory_order_seq_cst);
  if (own.num_sleeping.load(std::memory_order_seq_cst) > 0) {
    Futex(own.round, FUTEX_WAKE, INT_MAX, nullptr);
  }
}

SharedSegment::Arrival SharedSegment::Await(int rank, absl::Time deadline) const {
  Control& other = control(rank);
  uint32_t seen = 0;
  const auto is_here = [&] {
    seen = other.round.load(std::memory_order_seq_cst);
    return static_cast<int32_t>((seen - round_) << 1) >= 0;  // also correct after wrap-around
  };
  // If ranks share a core, spinning keeps the other rank from arriving.
  const int num_spins = has_own_core_ ? kSpins : 1;
  for (int spin = 0; spin < num_spins; ++spin) {
    if (is_here()) return Arrival::kHere;
    Pause();
  }
  const absl::Duration longest = is_watched_[rank] ? kWatchedSleep : kSleep;
  while (true) {
    other.num_sleeping.fetch_add(1, std::memory_order_seq_cst);
    if (!is_here() && (seen & kGone) == 0) {
      const absl::Duration rest = deadline - SteadyNow();
      const timespec timeout = absl::ToTimespec(std::clamp(rest, absl::ZeroDuration(), longest));
      ++num_sleeps_;
      Futex(other.round, FUTEX_WAIT, seen, &timeout);
    }
    other.num_sleeping.fetch_sub(1, std::memory_order_seq_cst);
    if (is_here()) return Arrival::kHere;
    // The rank may have arrived, and left, since.
    if ((seen & kGone) != 0 || !IsAlive(rank)) return is_here() ? Arrival::kHere : Arrival::kGone;
    if (SteadyNow() >= deadline) return Arrival::kLate;
  }
}

}  // namespace lathe::worker
