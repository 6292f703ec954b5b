// Vectors of pairs of bfloat16, and the softmax over a tile of scores: what attend_pairs.cc is made
// of. In an unnamed namespace for the reason that vector.h gives.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "vector.h"

namespace sgjax {
namespace SGJAX_ISA {
namespace {

constexpr int kTile = 64;            // tokens
constexpr int kVectors = kTile / W;  // of scores of a row
constexpr int64_t kTogether = 64;  // columns of values added up at a time
constexpr float kNever = -1e30f;   // a score below all others that is still a number
constexpr float kSlack = 8;        // a weight may be 2^8: few tops are worth rescaling sums for
constexpr float kLog2e = 1.44269504f, kLn2 = 0.69314718f;

inline __m512bh pairs(const uint16_t* p) { return (__m512bh)_mm512_loadu_si512(p); }
inline __m512bh both(const uint16_t* p) {  // one pair, in every lane
  int32_t two;
  std::memcpy(&two, p, sizeof two);
  return (__m512bh)_mm512_set1_epi32(two);
}
inline __m512 dot(__m512 sum, __m512bh a, __m512bh b) { return _mm512_dpbf16_ps(sum, a, b); }

// 2^x for finite x, to 1 in 9,000; rounding to bfloat16 then adds ten times as much.
inline __m512 exp2_(__m512 x) {
  constexpr int floor = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  const __m512 r = _mm512_reduce_ps(x, floor);
  __m512 p = _mm512_set1_ps(0.078024523f);
  for (float c : {0.22606716f, 0.69583354f, 1.0f}) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  return _mm512_scalef_ps(p, x);  // which takes x down to an integer itself
}

// Queries and running sums of one task: rows of one kv head lie together. Tops are near the highest
// scores, in units of log 2; sums are per lane; columns of sums are in the order in which `weave`
// leaves them.
struct State {
  int64_t M;
  float unit;  // from a product of query and key to a score
  const int32_t* limits;                        // [M]
  uint16_t *queries, *keys, *values, *weights;  // [rows, D], turned, woven, [6, kTile]
  float *acc, *top, *total, *scores;            // [rows, D], [rows], [rows, W], [6, kTile]
};

// Turn products into weights 2^(score - top), rescale what was summed before. Tokens from `seen` on
// get no weight.
template <int V>
inline void soften(const State& s, int64_t D, int64_t row, int64_t seen, __m512* x,
                   uint16_t* weights) {
  if (seen < V * W) {
    for (int v = 0; v < V; ++v) {
      const int64_t left = std::clamp<int64_t>(seen - v * W, 0, W);
      x[v] = _mm512_mask_mov_ps(_mm512_set1_ps(kNever), __mmask16((1u << left) - 1), x[v]);
    }
  }
  __m512 most = x[0];
  for (int v = 1; v < V; ++v) most = _mm512_max_ps(most, x[v]);
  const __m512 unit = _mm512_set1_ps(s.unit);
  __m512 top = _mm512_set1_ps(s.top[row]);
  __m512 total = _mm512_loadu_ps(s.total + row * W);
  if (_mm512_cmp_ps_mask(_mm512_fmsub_ps(most, unit, top), _mm512_set1_ps(kSlack), _CMP_GT_OQ)) {
    const float highest = _mm512_reduce_max_ps(most) * s.unit;
    const __m512 decay = exp2_(_mm512_set1_ps(s.top[row] - highest));
    total = _mm512_mul_ps(total, decay);
    float* acc = s.acc + row * D;
    for (int64_t d = 0; d < D; d += W)
      _mm512_storeu_ps(acc + d, _mm512_mul_ps(_mm512_loadu_ps(acc + d), decay));
    s.top[row] = highest;
    top = _mm512_set1_ps(highest);
  }
  for (int v = 0; v < V; ++v) {
    x[v] = exp2_(_mm512_fmsub_ps(x[v], unit, top));
    total = _mm512_add_ps(total, x[v]);
    _mm256_storeu_si256((__m256i*)(weights + v * W), (__m256i)_mm512_cvtneps_pbh(x[v]));
  }
  _mm512_storeu_ps(s.total + row * W, total);
}

// 16 rows' columns d to d + 31, turned: vector i holds pair i of each row.
inline void turned(const uint16_t* const* rows, int64_t d, F* x) {
  for (int i = 0; i < W; ++i) x[i] = (F)_mm512_loadu_si512(rows[i] + d);
  turn(x);
}

// 32 columns of two rows, side by side: columns 8i to 8i + 3 in the first, 8i + 4 to 8i + 7 in the
// second vector.
inline void weave(const uint16_t* a, const uint16_t* b, __m512bh* x) {
  const __m512i first = _mm512_loadu_si512(a), second = _mm512_loadu_si512(b);
  x[0] = (__m512bh)_mm512_unpacklo_epi16(first, second);
  x[1] = (__m512bh)_mm512_unpackhi_epi16(first, second);
}

// Undo the order of columns: from 32 sums of a row to `to`, times a factor.
inline void unweave(const float* acc, float factor, __m512* to) {
  const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  const __m512 by = _mm512_set1_ps(factor);
  const __m512 a = _mm512_mul_ps(_mm512_loadu_ps(acc), by);
  const __m512 b = _mm512_mul_ps(_mm512_loadu_ps(acc + W), by);
  to[0] = _mm512_permutex2var_ps(a, low, b);
  to[1] = _mm512_permutex2var_ps(a, high, b);
}

// Weighted sums of V * 16 columns of R rows over `count` pairs of tokens. `woven(pair, x)` gives the
// columns' V vectors.
template <int R, int V, typename Woven>
inline void add(float* acc, int64_t D, const uint16_t* weights, int64_t count, Woven woven) {
  __m512 sum[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sum[r][v] = _mm512_loadu_ps(acc + r * D + v * W);
  for (int64_t j = 0; j < count; ++j) {
    __m512bh x[V];
    woven(j, x);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512bh weight = both(weights + r * kTile + 2 * j);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = dot(sum[r][v], weight, x[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) _mm512_storeu_ps(acc + r * D + v * W, sum[r][v]);
}

}  // namespace
}  // namespace SGJAX_ISA
}  // namespace sgjax
