// The activation of a gated MLP. In its own header, because kernels and specs use it.
#pragma once

namespace lathe::worker {

// hidden_act of an HF config: "silu", or "gelu_pytorch_tanh".
enum class Activation { kSilu, kGeluTanh };

}  // namespace lathe::worker
