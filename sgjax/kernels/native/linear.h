// What the drivers and the products (linear.cc, compiled once for each instruction set) share.
#pragma once

#include <cstdint>

namespace sgjax {

enum class Kind : int32_t { f32, bf16, packed, int8 };

constexpr int64_t kGroup = 64;  // columns that share a scale; panels are padded to whole groups
constexpr int64_t kPack = 16;   // rows of a packed or int8 matrix that lie together

// Weights of a product, [O, I]. A packed matrix is bf16[O / 16, I / 2, 16, 2], both padded by zeros
// to whole packs and groups, for processors that multiply pairs of bfloat16. An int8 matrix is [O / 16, I / 4, 16, 4], both padded by zeros to
// whole packs and groups, each code stored as code + 128, with scales [O / 16, I / 64, 16].
struct Matrix {
  Kind kind;
  int64_t O, I;
  const void* data;
  const float* scales;
};

// The other factor, T rows of `stride` columns: as the instruction set multiplies them. For int8
// each group of a row has a scale, and -128 times the sum of its codes.
struct Panel {
  Kind kind;
  int64_t stride;
  void* data;
  float* scales;
  int32_t* sums;
};

#define SGJAX_DECLARE_LINEAR(isa)                                                              \
  namespace isa {                                                                              \
  /* out[t][r] = rows `row` + r of m times rows `token` + t of x; out's rows are ldo apart. */ \
  void product(const Matrix& m, int64_t row, int64_t rows, const Panel& x, int64_t token,      \
               int64_t tokens, float* out, int64_t ldo);                                       \
  /* Put n values into a panel's row from a column on that begins a group. */                  \
  void put(const Panel& to, int64_t token, int64_t column, const float* x, int64_t n);         \
  void put(const Panel& to, int64_t token, int64_t column, const uint16_t* x, int64_t n);      \
  /* y = x / rms(x) * scale. */                                                                \
  void normalize(const float* x, const float* scale, float eps, int64_t n, float* y);          \
  /* gate = silu(gate) * up. */                                                                \
  void gated(float* gate, const float* up, int64_t n);                                         \
  /* Rows at[t] of out, ldo apart, are those of base, or none, and n values each of y. */       \
  void add(const float* y, const int32_t* at, int64_t tokens, int64_t n, const float* base,    \
           float* out, int64_t ldo);                                                           \
  void narrow(const float* x, int64_t n, uint16_t* y);                                         \
  }

SGJAX_DECLARE_LINEAR(generic)
SGJAX_DECLARE_LINEAR(avx2)
SGJAX_DECLARE_LINEAR(avx512)
SGJAX_DECLARE_LINEAR(avx512_bf16)

}  // namespace sgjax
