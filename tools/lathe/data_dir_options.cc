#include "tools/lathe/data_dir_options.h"

namespace lathe::cli {

void AddDataDirOptions(OptionSet& set, DataDirOptions& options) {
  set.Add(&options.dir, "data.dir", DefaultDataDir(), "directory that holds everything Lathe keeps",
          {.flag = "data-dir"});
  set.Add(&options.run_dir, "data.run_dir", "",
          "folder of the sockets; default: DATA_DIR/run, or one under /tmp when that is too long",
          {.flag = "run-dir"});
}

DataDir OpenDataDir(const DataDirOptions& options) { return DataDir(options.dir, options.run_dir); }

}  // namespace lathe::cli
