// Shadow memory says which emulated threads have read and written each byte. It finds accesses
// outside of buffers, reads of bytes that nobody has written, and races.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lathe::worker::emulation {

enum class AccessKind { kRead, kWrite, kAtomic };

struct Access {
  const void* address;
  size_t size;
  AccessKind kind;
};

// A buffer holds this before a kernel runs.
enum class Contents { kNothing, kNumbers, kConstants };

// A thread's work between two barriers. Accesses of different threads are ordered if a barrier that
// both wait at lies between them.
struct Segment {
  int thread;
  int warp_barriers;  // that the thread's warp has passed
};

class ShadowMemory {
 public:
  // Buffers of a device. A launch's arguments are constants.
  void AddBuffer(const void* data, size_t size, std::string name, Contents contents);
  void RemoveBuffer(const void* data);
  // Returns how many of a buffer's bytes nobody has written.
  size_t NumUnwritten(const void* data) const;

  // Memory of a block, which holds nothing when one begins.
  void SetShared(const void* data, size_t size);
  void SetDynamicShared(const void* data, size_t size, size_t capacity);

  // Blocks run one after another, and all of a launch are unordered.
  void BeginLaunch();
  void BeginBlock(int64_t block);
  void PassBarrier();                         // of the block
  void BeginSegment(const Segment& segment);  // of the thread's next accesses

  // Notes an access of a thread of this block. Returns what is wrong with it.
  std::optional<std::string> Note(int thread, const Access& access);

 private:
  using Stamp = uint32_t;  // number of a segment, and whether the access was atomic

  // One byte. A zero stamp is no access.
  struct Cell {
    Stamp writer = 0;
    std::array<Stamp, 2> readers = {};  // of the farthest apart, see NoteReader

    bool operator==(const Cell& other) const {
      return writer == other.writer && readers[0] == other.readers[0] &&
             readers[1] == other.readers[1];
    }
  };

  struct Region {
    const char* begin = nullptr;
    size_t size = 0;
    std::string name;
    Contents contents = Contents::kNothing;
    bool is_shared = false;
    std::vector<Cell> cells;
  };

  // How far apart two segments are.
  enum class Distance { kThread, kWarp, kBlock, kGrid };

  Region* Find(const void* address);
  std::optional<std::string> NoteByte(const Region& region, Cell& cell, Stamp now, AccessKind kind);
  void NoteReader(Cell& cell, Stamp now);
  bool IsRace(Stamp before, Stamp now) const;
  Distance DistanceOf(Stamp a, Stamp b) const;
  const Segment& SegmentOf(Stamp stamp) const;
  std::string Describe(Stamp stamp) const;

  std::vector<Region> buffers_;
  Region shared_;
  Region dynamic_shared_;
  size_t dynamic_capacity_ = 0;

  struct Block {
    int64_t index;
    Stamp first;
  };
  Stamp next_ = 2;  // 1 is what a buffer held before
  Stamp first_of_launch_ = 2;
  Stamp first_of_block_ = 2;
  Stamp first_since_barrier_ = 2;
  std::vector<Block> blocks_;      // of this launch, the last one runs
  std::vector<Segment> segments_;  // of this block, from its first stamp on
  std::vector<Stamp> current_;     // by thread
};

}  // namespace lathe::worker::emulation
