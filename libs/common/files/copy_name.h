// Identifies a copied checkpoint without the engine.
#pragma once

namespace lathe {

// File beside the manifest of a copied checkpoint. It holds the copy's own tinker:// path; the
// other files are those of the source.
inline constexpr char kCopyNameFile[] = "copied_as";

}  // namespace lathe
