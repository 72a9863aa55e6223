// Columns of the tables of kept metrics, in the order in which they are bound and read.
#pragma once

namespace lathe::engine {

inline constexpr char kRunSeriesColumns[] =
    "run_id, tenant_id, num_steps, folded_through, num_series, last_at";

// All columns of `series` but its tail, which comes last.
inline constexpr char kSeriesHeadColumns[] =
    "run_id, name, unit, source, folded_through, num_points, num_sealed, last_step, last_value, "
    "last_ms";

inline constexpr char kSeriesChunkColumns[] =
    "run_id, name, level, number, first_step, last_step, num_buckets, bytes";

}  // namespace lathe::engine
