// Changes of a database from outside of its store, for tests of damage.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <filesystem>
#include <string>

namespace lathe::engine {

// Runs a statement on a connection of its own. Throws SQLite::Exception.
inline void ExecuteSql(const std::filesystem::path& database, const std::string& sql) {
  SQLite::Database(database, SQLite::OPEN_READWRITE).exec(sql);
}

}  // namespace lathe::engine
