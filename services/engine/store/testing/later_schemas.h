// Schemas of the two releases that follow this one, for tests of upgrades and rollbacks.
#pragma once

#include <vector>

#include "services/engine/store/sql/schema.h"

namespace lathe::engine {

// Stands for the next two releases. Must outlive the stores that use its schemas.
class LaterSchemas {
 public:
  // The next release adds a column, which engines of this release do not know.
  Schema Next() const { return {.migrations = next_, .protocol = OwnSchema().protocol + 1}; }
  // The release after that removes it, and says that engines before the next release need it. The
  // code of this release stands for all three, so it cannot remove anything that is used.
  Schema AfterNext() const {
    return {.migrations = after_next_, .protocol = OwnSchema().protocol + 2};
  }

 private:
  static constexpr char kAddColumn[] =
      "ALTER TABLE sessions ADD COLUMN color TEXT NOT NULL DEFAULT ''";
  static constexpr char kDropColumn[] = "ALTER TABLE sessions DROP COLUMN color";

  static std::vector<Migration> With(std::vector<Migration> migrations, Migration last) {
    migrations.push_back(last);
    return migrations;
  }

  const std::vector<Migration> next_ = With({Migrations().begin(), Migrations().end()},
                                            {.sqlite = kAddColumn, .postgres = kAddColumn});
  const std::vector<Migration> after_next_ = With(
      next_,
      {.sqlite = kDropColumn, .postgres = kDropColumn, .unused_since = OwnSchema().protocol + 1});
};

}  // namespace lathe::engine
