// Memory of a thread that runs attention's tasks. In an unnamed namespace for the reason that
// vector.h gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sgjax {
namespace SGJAX_ISA {
namespace {

// Grows to the largest task and stays; what is taken begins at cache lines.
struct Scratch {
  std::vector<float> floats;
  size_t used = 0;
  void reset(size_t n) {
    if (floats.size() < n + 16) floats.resize(n + 16);
    used = (64 - reinterpret_cast<uintptr_t>(floats.data()) % 64) / sizeof(float) % 16;
  }
  float* take(size_t n) {
    float* p = floats.data() + used;
    used += (n + 15) / 16 * 16;
    return p;
  }
  int32_t* whole(size_t n) { return reinterpret_cast<int32_t*>(take(n)); }
  uint16_t* narrow(size_t n) { return reinterpret_cast<uint16_t*>(take((n + 1) / 2)); }
};

}  // namespace
}  // namespace SGJAX_ISA
}  // namespace sgjax
