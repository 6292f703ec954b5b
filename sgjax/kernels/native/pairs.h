// Vectors of pairs of bfloat16, and what few.h and many.h share of attention in them. In an unnamed
// namespace for the reason that vector.h gives.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "attend.h"
#include "vector.h"

namespace sgjax {
namespace SGJAX_ISA {
namespace {

constexpr int kTile = 64;         // tokens
constexpr float kNever = -1e30f;  // a score below all others that is still a number
constexpr float kSlack = 8;       // a weight may be 2^8: few tops are worth rescaling sums for
constexpr float kLog2e = 1.44269504f, kLn2 = 0.69314718f;

// 64 tokens of a kv head.
struct Tile {
  const uint16_t *keys[kTile], *values[kTile];  // those past the end repeat the first
  // What is read next. Pages lie anywhere, so it is told in advance, little by little.
  const uint16_t *next_keys[kTile], *next_values[kTile];
  int64_t start, n;
};

inline void soon(const uint16_t* p) { __builtin_prefetch(p, 0, 2); }

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

// From a product of query and key to a score in units of log 2.
inline float unit_of(const Call& call) { return kLog2e / std::sqrt(float(call.D)); }

// 16 rows' columns d to d + 31, turned: vector i holds pair i of each row.
inline void turned(const uint16_t* const* rows, int64_t d, F* x) {
  for (int i = 0; i < W; ++i) x[i] = (F)_mm512_loadu_si512(rows[i] + d);
  turn(x);
}

struct Row {
  int32_t token, q;  // its index in the task, the query head of a kv head
};

// The same rows of each kv head of a task.
struct Rows {
  const Row* at;
  int64_t n;
};

// The first query head of the task's head-th kv head.
inline int64_t first_head(const Call& call, const Task& task, int64_t head) {
  return (task.head + head) * (call.H / call.K);
}

inline const uint16_t* query(const Call& call, const Task& task, int64_t first, Row row) {
  const int64_t at = task.tokens[row.token] * call.H + first + row.q;
  return static_cast<const uint16_t*>(call.q) + at * call.D;
}

// Put 32 columns of a row's result, from column d on: into its partial, or rounded into `out` where
// the task is all there is.
inline void put(const Call& call, const Task& task, const Partials& partials, int64_t first,
                Row row, int64_t d, __m512 low, __m512 high) {
  const int64_t slot = task.slots[row.token], head = first + row.q;
  if (slot < 0) {
    const int64_t at = task.tokens[row.token] * call.H + head;
    auto* out = static_cast<uint16_t*>(call.out) + at * call.D;
    _mm512_storeu_si512(out + d, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  } else {
    float* acc = partials.acc + (slot * call.H + head) * call.D;
    _mm512_storeu_ps(acc + d, low);
    _mm512_storeu_ps(acc + d + W, high);
  }
}

// Put the sums of a row where they belong. Return by what its columns are to be multiplied.
inline float put_sums(const Call& call, const Task& task, const Partials& partials,
                      int64_t first, Row row, float top, float total) {
  const int64_t slot = task.slots[row.token];
  if (slot < 0) return 1.0f / total;
  const int64_t at = slot * call.H + first + row.q;
  partials.top[at] = top * kLn2;
  partials.total[at] = total;
  return 1.0f;
}

}  // namespace
}  // namespace SGJAX_ISA
}  // namespace sgjax
