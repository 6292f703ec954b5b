// Vectors of float32 for one instruction set, in the extensions that GCC and Clang share.
//
// Kernels are compiled once for each instruction set, with SGJAX_ISA naming it and SGJAX_LANES its
// float32 lanes; everything here is in an unnamed namespace inside that one.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace sgjax {
namespace SGJAX_ISA {
namespace {

constexpr int W = SGJAX_LANES;

typedef float F __attribute__((vector_size(W * 4)));
typedef int32_t I __attribute__((vector_size(W * 4)));
typedef uint32_t U __attribute__((vector_size(W * 4)));
typedef uint16_t U16 __attribute__((vector_size(W * 2)));
using Lanes = std::make_integer_sequence<int, W>;

inline F load(const float* p) {
  F x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
inline F widen(U16 x) {  // bfloat16 is the upper half of a float32
  return (F)(__builtin_convertvector(x, U) << 16);
}
inline F load(const uint16_t* p) {
  U16 x;
  std::memcpy(&x, p, sizeof x);
  return widen(x);
}
inline void store(float* p, F x) { std::memcpy(p, &x, sizeof x); }
inline F splat(float x) { return F{} + x; }
inline float widen(float x) { return x; }
inline float widen(uint16_t x) {
  uint32_t bits = uint32_t{x} << 16;
  float y;
  std::memcpy(&y, &bits, sizeof y);
  return y;
}
inline uint16_t narrow(float x) {  // to nearest even
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if (x != x) return uint16_t(bits >> 16 | 64);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#if defined(__AVX512BF16__)
inline U16 narrow(F x) { return (U16)_mm512_cvtneps_pbh((__m512)x); }
#else
inline U16 narrow(F x) {
  const U bits = (U)x;
  const U even = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, nan = bits >> 16 | 64;
  const U odd = (U)(x != x);
  return __builtin_convertvector((even & ~odd) | (nan & odd), U16);
}
#endif
inline void store(uint16_t* p, U16 x) { std::memcpy(p, &x, sizeof x); }
inline void store(float* p, U16 x) { store(p, widen(x)); }

// exp for x <= 0; exactly 0 below -87, where float32 ends.
inline F exp_(F x) {
  const F round = splat(12582912.0f);  // 1.5 * 2^23: adding it leaves an integer in the low bits
  F n = (x * splat(1.44269504f) + round) - round;
  F r = x - n * splat(0.693359375f) + n * splat(2.12194440e-4f);
  F p = splat(1.9875691500e-4f);
  p = p * r + splat(1.3981999507e-3f);
  p = p * r + splat(8.3334519073e-3f);
  p = p * r + splat(4.1665795894e-2f);
  p = p * r + splat(1.6666665459e-1f);
  p = p * r + splat(5.0000001201e-1f);
  p = p * r * r + r + splat(1.0f);
  I scale = (__builtin_convertvector(n, I) + 127) << 23;
  return (F)((I)(p * (F)scale) & (x > splat(-87.0f)));
}
inline float exp_(float x) { return exp_(splat(x))[0]; }

// Lanes whose bit Half is clear come from a, the others from b moved down; and the reverse.
template <int Half, int... L>
inline F low(F a, F b, std::integer_sequence<int, L...>) {
  return __builtin_shufflevector(a, b, (L & Half ? L - Half + W : L)...);
}
template <int Half, int... L>
inline F high(F a, F b, std::integer_sequence<int, L...>) {
  return __builtin_shufflevector(a, b, (L & Half ? L + W : L + Half)...);
}

// Turn W vectors of W lanes: afterwards v[i][j] is what v[j][i] was.
template <int Half = W / 2>
inline void turn(F* v) {
  for (int i = 0; i < W; ++i) {
    if (i & Half) continue;
    F a = v[i], b = v[i + Half];
    v[i] = low<Half>(a, b, Lanes{});
    v[i + Half] = high<Half>(a, b, Lanes{});
  }
  if constexpr (Half > 1) turn<Half / 2>(v);
}

// Return the vector whose lane i is the sum of the lanes of v[i].
template <int Half = W / 2>
inline F sums(F* v) {
  for (int i = 0; i < Half; ++i) {
    F a = v[i], b = v[i + Half];
    v[i] = low<Half>(a, b, Lanes{}) + high<Half>(a, b, Lanes{});
  }
  if constexpr (Half > 1) return sums<Half / 2>(v);
  return v[0];
}

inline float largest(F x) {
  float y = x[0];
  for (int i = 1; i < W; ++i) y = x[i] > y ? x[i] : y;
  return y;
}

}  // namespace
}  // namespace SGJAX_ISA
}  // namespace sgjax
