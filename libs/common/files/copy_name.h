// How a copied checkpoint is known without the engine.
#pragma once

namespace lathe {

// Beside the manifest of a copy, whose files are its source's: the copy's own tinker:// path.
inline constexpr char kCopyNameFile[] = "copied_as";

}  // namespace lathe
