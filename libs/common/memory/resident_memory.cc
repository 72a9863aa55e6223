#include "libs/common/memory/resident_memory.h"

#include <unistd.h>

#include <fstream>

namespace lathe {

int64_t ResidentMemoryBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total_pages = 0;
  int64_t resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

}  // namespace lathe
