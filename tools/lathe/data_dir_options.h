// The options --data-dir and --run-dir, which all verbs share.
#pragma once

#include <string>

#include "libs/common/config/option_set.h"
#include "tools/lathe/data_dir.h"

namespace lathe::cli {

struct DataDirOptions {
  std::string dir;
  // Folder of the sockets; empty: DataDir's default.
  std::string run_dir;
};

// `options` must outlive `set`.
void AddDataDirOptions(OptionSet& set, DataDirOptions& options);

DataDir OpenDataDir(const DataDirOptions& options);

}  // namespace lathe::cli
