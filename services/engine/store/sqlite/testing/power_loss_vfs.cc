#include "services/engine/store/sqlite/testing/power_loss_vfs.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <new>
#include <sstream>

namespace lathe::engine {
namespace {

constexpr size_t kSectorBytes = 512;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return std::move(bytes).str();
}

}  // namespace

// The real file's structure follows this one in memory.
struct PowerLossVfs::File {
  sqlite3_file base;
  PowerLossVfs* shim;
  std::string* path;  // null: a temporary file

  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
  static File& Of(sqlite3_file* file) { return *reinterpret_cast<File*>(file); }
  static sqlite3_file* Real(sqlite3_file* file) { return Of(file).real(); }

  void BeforeOperation() const {
    if (path != nullptr && shim->on_operation_) shim->on_operation_();
  }
};

PowerLossVfs::PowerLossVfs(uint64_t seed)
    : real_(sqlite3_vfs_find(nullptr)), vfs_(*real_), random_(seed) {
  vfs_.zName = "power_loss";
  vfs_.pAppData = this;
  vfs_.szOsFile = static_cast<int>(sizeof(File)) + real_->szOsFile;
  vfs_.xOpen = Open;
  vfs_.xDelete = Delete;
  sqlite3_vfs_register(&vfs_, /*makeDflt=*/1);
}

PowerLossVfs::~PowerLossVfs() {
  sqlite3_vfs_unregister(&vfs_);
  sqlite3_vfs_register(real_, /*makeDflt=*/1);
}

PowerLossVfs& PowerLossVfs::Of(sqlite3_vfs* vfs) {
  return *static_cast<PowerLossVfs*>(vfs->pAppData);
}

int PowerLossVfs::Open(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags,
                       int* out_flags) {
  PowerLossVfs& shim = Of(vfs);
  auto* const opened = new (file) File{.base = {}, .shim = &shim, .path = nullptr};
  const int code = shim.real_->xOpen(shim.real_, path, opened->real(), flags, out_flags);
  if (opened->real()->pMethods == nullptr) return code;
  opened->base.pMethods = &Methods();
  if (path != nullptr && code == SQLITE_OK) opened->path = new std::string(path);
  return code;
}

int PowerLossVfs::Delete(sqlite3_vfs* vfs, const char* path, int sync_dir) {
  PowerLossVfs& shim = Of(vfs);
  shim.synced_.erase(path);
  return shim.real_->xDelete(shim.real_, path, sync_dir);
}

const sqlite3_io_methods& PowerLossVfs::Methods() {
  static const sqlite3_io_methods methods = {
      .iVersion = 3,
      .xClose =
          [](sqlite3_file* file) {
            delete File::Of(file).path;
            return File::Real(file)->pMethods->xClose(File::Real(file));
          },
      .xRead =
          [](sqlite3_file* file, void* bytes, int size, sqlite3_int64 offset) {
            return File::Real(file)->pMethods->xRead(File::Real(file), bytes, size, offset);
          },
      .xWrite =
          [](sqlite3_file* file, const void* bytes, int size, sqlite3_int64 offset) {
            File::Of(file).BeforeOperation();
            return File::Real(file)->pMethods->xWrite(File::Real(file), bytes, size, offset);
          },
      .xTruncate =
          [](sqlite3_file* file, sqlite3_int64 size) {
            File::Of(file).BeforeOperation();
            return File::Real(file)->pMethods->xTruncate(File::Real(file), size);
          },
      .xSync =
          [](sqlite3_file* file, int flags) {
            File& one = File::Of(file);
            one.BeforeOperation();
            if (one.path != nullptr) one.shim->synced_[*one.path] = ReadFile(*one.path);
            return one.real()->pMethods->xSync(one.real(), flags);
          },
      .xFileSize =
          [](sqlite3_file* file, sqlite3_int64* size) {
            return File::Real(file)->pMethods->xFileSize(File::Real(file), size);
          },
      .xLock = [](sqlite3_file* file,
                  int level) { return File::Real(file)->pMethods->xLock(File::Real(file), level); },
      .xUnlock =
          [](sqlite3_file* file, int level) {
            return File::Real(file)->pMethods->xUnlock(File::Real(file), level);
          },
      .xCheckReservedLock =
          [](sqlite3_file* file, int* result) {
            return File::Real(file)->pMethods->xCheckReservedLock(File::Real(file), result);
          },
      .xFileControl =
          [](sqlite3_file* file, int operation, void* argument) {
            return File::Real(file)->pMethods->xFileControl(File::Real(file), operation, argument);
          },
      .xSectorSize =
          [](sqlite3_file* file) {
            return File::Real(file)->pMethods->xSectorSize(File::Real(file));
          },
      .xDeviceCharacteristics =
          [](sqlite3_file* file) {
            return File::Real(file)->pMethods->xDeviceCharacteristics(File::Real(file));
          },
      .xShmMap =
          [](sqlite3_file* file, int page, int size, int extend, void volatile** memory) {
            return File::Real(file)->pMethods->xShmMap(File::Real(file), page, size, extend,
                                                       memory);
          },
      .xShmLock =
          [](sqlite3_file* file, int offset, int count, int flags) {
            return File::Real(file)->pMethods->xShmLock(File::Real(file), offset, count, flags);
          },
      .xShmBarrier =
          [](sqlite3_file* file) { File::Real(file)->pMethods->xShmBarrier(File::Real(file)); },
      .xShmUnmap =
          [](sqlite3_file* file, int remove) {
            return File::Real(file)->pMethods->xShmUnmap(File::Real(file), remove);
          },
      .xFetch =
          [](sqlite3_file* file, sqlite3_int64 offset, int size, void** memory) {
            return File::Real(file)->pMethods->xFetch(File::Real(file), offset, size, memory);
          },
      .xUnfetch =
          [](sqlite3_file* file, sqlite3_int64 offset, void* memory) {
            return File::Real(file)->pMethods->xUnfetch(File::Real(file), offset, memory);
          },
  };
  return methods;
}

std::string PowerLossVfs::AfterLoss(const std::string& path, const std::string& synced) {
  const std::string current = ReadFile(path);
  std::string kept = synced;
  for (size_t begin = 0; begin < current.size(); begin += kSectorBytes) {
    if (random_() % 2 == 0) continue;
    const size_t size = std::min(kSectorBytes, current.size() - begin);
    if (begin + size > kept.size()) kept.resize(begin + size, '\0');
    kept.replace(begin, size, current, begin, size);
  }
  return kept;
}

void PowerLossVfs::CopyAfterLoss(const std::filesystem::path& dir) {
  std::filesystem::create_directories(dir);
  for (const auto& [path, synced] : synced_) {
    std::ofstream copy(dir / std::filesystem::path(path).filename(), std::ios::binary);
    copy << AfterLoss(path, synced);
  }
}

}  // namespace lathe::engine
