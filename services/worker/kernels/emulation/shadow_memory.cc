#include "services/worker/kernels/emulation/shadow_memory.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_format.h>

#include "services/worker/kernels/emulation/block.h"

namespace lathe::worker::emulation {
namespace {

constexpr uint32_t kAtomicBit = uint32_t{1} << 31;
constexpr uint32_t kBeforeLaunch = 1;

const char* NameOf(AccessKind kind) {
  switch (kind) {
    case AccessKind::kRead:
      return "reads";
    case AccessKind::kWrite:
      return "writes";
    case AccessKind::kAtomic:
      return "changes atomically";
  }
  return "";
}

}  // namespace

void ShadowMemory::AddBuffer(const void* data, size_t size, std::string name, Contents contents) {
  const Cell cell{.writer = contents == Contents::kNothing ? 0 : kBeforeLaunch};
  buffers_.push_back({.begin = static_cast<const char*>(data),
                      .size = size,
                      .name = std::move(name),
                      .contents = contents,
                      .cells = std::vector<Cell>(size, cell)});
}

void ShadowMemory::RemoveBuffer(const void* data) {
  std::erase_if(buffers_, [&](const Region& buffer) { return buffer.begin == data; });
}

size_t ShadowMemory::NumUnwritten(const void* data) const {
  for (const Region& buffer : buffers_) {
    if (buffer.begin != data) continue;
    return static_cast<size_t>(std::ranges::count(buffer.cells, Stamp{0}, &Cell::writer));
  }
  return 0;
}

void ShadowMemory::SetShared(const void* data, size_t size) {
  if (shared_.begin == data && shared_.size == size) return;
  shared_ = {.begin = static_cast<const char*>(data),
             .size = size,
             .name = "shared memory",
             .is_shared = true,
             .cells = std::vector<Cell>(size)};
}

void ShadowMemory::SetDynamicShared(const void* data, size_t size, size_t capacity) {
  if (dynamic_shared_.begin != data) {
    dynamic_shared_ = {.begin = static_cast<const char*>(data),
                       .name = "dynamic shared memory",
                       .is_shared = true,
                       .cells = std::vector<Cell>(capacity)};
  }
  dynamic_shared_.size = size;
  dynamic_capacity_ = capacity;
}

void ShadowMemory::BeginLaunch() {
  first_of_launch_ = next_;
  blocks_.clear();
}

void ShadowMemory::BeginBlock(int64_t block) {
  blocks_.push_back({block, next_});
  first_of_block_ = first_since_barrier_ = next_;
  segments_.clear();
  current_.clear();
}

void ShadowMemory::PassBarrier() { first_since_barrier_ = next_; }

void ShadowMemory::BeginSegment(const Segment& segment) {
  if (static_cast<size_t>(segment.thread) >= current_.size()) current_.resize(segment.thread + 1);
  current_[segment.thread] = next_++;
  segments_.push_back(segment);
}

std::optional<std::string> ShadowMemory::Note(int thread, const Access& access) {
  Region* region = Find(access.address);
  const auto* begin = static_cast<const char*>(access.address);
  const auto fail = [&](const std::string& what) {
    return absl::StrFormat("thread %d %s %d bytes %s", thread, NameOf(access.kind), access.size,
                           what);
  };
  if (region == nullptr) return fail("outside of every buffer");
  const size_t offset = begin - region->begin;
  if (offset + access.size > region->size) {
    return fail(
        absl::StrFormat("at byte %d of %s, which has %d", offset, region->name, region->size));
  }
  if (region->contents == Contents::kConstants && access.kind != AccessKind::kRead) {
    return fail(absl::StrFormat("at byte %d of %s, which is constant", offset, region->name));
  }
  // Most bytes of an access have the same past.
  const Cell past = region->cells[offset];
  for (size_t i = offset; i < offset + access.size; ++i) {
    Cell& cell = region->cells[i];
    if (i > offset && cell == past) {
      cell = region->cells[offset];
      continue;
    }
    const auto what = NoteByte(*region, cell, current_[thread], access.kind);
    if (what) return fail(absl::StrFormat("at byte %d of %s: %s", i, region->name, *what));
  }
  return std::nullopt;
}

ShadowMemory::Region* ShadowMemory::Find(const void* address) {
  const auto* byte = static_cast<const char*>(address);
  const auto is_in = [&](const Region& region, size_t size) {
    return byte >= region.begin && byte < region.begin + size;
  };
  // The thread's own shared memory contains the dynamic part.
  if (is_in(dynamic_shared_, dynamic_capacity_)) return &dynamic_shared_;
  if (is_in(shared_, shared_.size)) return &shared_;
  for (Region& buffer : buffers_) {
    if (is_in(buffer, buffer.size)) return &buffer;
  }
  return nullptr;
}

std::optional<std::string> ShadowMemory::NoteByte(const Region& region, Cell& cell, Stamp now,
                                                  AccessKind kind) {
  if (region.is_shared) {
    // A block has shared memory of its own, so accesses of earlier blocks do not count.
    for (Stamp* stamp : {&cell.writer, &cell.readers[0], &cell.readers[1]}) {
      if ((*stamp & ~kAtomicBit) < first_of_block_) *stamp = 0;
    }
  }
  if (kind != AccessKind::kWrite && cell.writer == 0) return "nobody has written it";
  const bool is_atomic = kind == AccessKind::kAtomic;
  const auto races = [&](Stamp before) {
    return before != 0 && !(is_atomic && (before & kAtomicBit) != 0) && IsRace(before, now);
  };
  if (races(cell.writer)) {
    return absl::StrFormat("a race, %s has written it", Describe(cell.writer));
  }
  for (const Stamp reader : cell.readers) {
    // Readers race with writers, and with what was an atomic change.
    if (kind == AccessKind::kRead && (reader & kAtomicBit) == 0) continue;
    if (races(reader)) return absl::StrFormat("a race, %s has read it", Describe(reader));
  }
  const Stamp stamp = is_atomic ? now | kAtomicBit : now;
  if (kind != AccessKind::kRead) cell.writer = stamp;
  if (kind != AccessKind::kWrite) NoteReader(cell, stamp);
  return std::nullopt;
}

// Keeps two readers of which at least one races with each later write that any reader races with:
// those that are farthest apart. A reader that is ordered before this one need not be kept.
void ShadowMemory::NoteReader(Cell& cell, Stamp now) {
  auto& [a, b] = cell.readers;
  if (a == now || b == now) return;
  // Two warps of this block have read it since the last barrier: a third one adds nothing.
  if (std::min(a & ~kAtomicBit, b & ~kAtomicBit) >= first_since_barrier_ &&
      DistanceOf(a, b) == Distance::kBlock) {
    return;
  }
  if (a == 0 || !IsRace(a, now)) {
    a = now;
  } else if (b == 0 || !IsRace(b, now)) {
    b = now;
  } else {
    (DistanceOf(b, now) < DistanceOf(a, now) ? b : a) = now;
  }
}

bool ShadowMemory::IsRace(Stamp before, Stamp now) const {
  before &= ~kAtomicBit;
  if (before < first_of_launch_) return false;
  if (before < first_of_block_) return true;
  if (before < first_since_barrier_) return false;
  const Segment& a = SegmentOf(before);
  const Segment& b = SegmentOf(now);
  if (a.thread == b.thread) return false;
  return a.thread / kWarpLanes != b.thread / kWarpLanes || a.warp_barriers == b.warp_barriers;
}

ShadowMemory::Distance ShadowMemory::DistanceOf(Stamp a, Stamp b) const {
  a &= ~kAtomicBit;
  b &= ~kAtomicBit;
  if (std::min(a, b) < first_of_block_) return Distance::kGrid;
  const int thread_a = SegmentOf(a).thread;
  const int thread_b = SegmentOf(b).thread;
  if (thread_a == thread_b) return Distance::kThread;
  return thread_a / kWarpLanes == thread_b / kWarpLanes ? Distance::kWarp : Distance::kBlock;
}

const Segment& ShadowMemory::SegmentOf(Stamp stamp) const {
  return segments_[(stamp & ~kAtomicBit) - first_of_block_];
}

std::string ShadowMemory::Describe(Stamp stamp) const {
  stamp &= ~kAtomicBit;
  if (stamp >= first_of_block_) {
    return absl::StrFormat("thread %d", SegmentOf(stamp).thread);
  }
  const auto next = std::ranges::upper_bound(blocks_, stamp, {}, &Block::first);
  return absl::StrFormat("a thread of block %d", std::prev(next)->index);
}

}  // namespace lathe::worker::emulation
