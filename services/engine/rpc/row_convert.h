// Rows of the store as messages.
#pragma once

#include <filesystem>

#include "google/protobuf/repeated_ptr_field.h"
#include "google/protobuf/timestamp.pb.h"
#include "protos/lathe/v1/engine.pb.h"
#include "services/engine/store/rows.h"

namespace lathe::engine {

google::protobuf::Timestamp ToTimestamp(int64_t nanos);
// Below 0: before 1970, or beyond what 64 bits of nanoseconds hold.
int64_t ToNanos(const google::protobuf::Timestamp& proto);

void SetMetadata(const Metadata& metadata,
                 google::protobuf::RepeatedPtrField<v1::NamedString>* proto);

// `root` holds the directories of checkpoints; it is looked whether this one's is there.
v1::Checkpoint ToProto(const CheckpointRow& row, const std::filesystem::path& root);

// Without the checkpoints.
v1::Run ToProto(const ModelRow& row, const std::string& owner_name);

v1::ServedModel ToProto(const BaseModelRow& row);

}  // namespace lathe::engine
