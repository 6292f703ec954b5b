// Attention of up to six rows of a kv head in pairs of bfloat16, tokens in the lanes: keys are
// turned in registers so that 16 tokens fill a vector of scores, and values are woven so that those
// of two tokens lie side by side. In an unnamed namespace for the reason that vector.h gives.
#pragma once

#include "pairs.h"
#include "scratch.h"

namespace sgjax {
namespace SGJAX_ISA {
namespace {

constexpr int64_t kMostFew = 6;
constexpr int kVectors = kTile / W;  // of scores of a row
constexpr int64_t kTogether = 64;    // columns of values added up at a time

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

// Weighted sums of V * 16 columns of R rows over `count` pairs of tokens. `woven(pair, x)` gives V
// vectors of values.
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

// Few rows and their running sums. Tops are near the highest scores, in units of log 2; sums are
// per lane; columns of sums are in the order in which `weave` leaves them.
class Few {
 public:
  Few(const Call& call, const Task& task, Rows rows, Scratch& scratch)
      : D_(call.D), rows_(rows), unit_(unit_of(call)) {
    const int64_t all = rows.n * task.num_heads;
    scratch.reset(all * (D_ + D_ / 2 + W + 1) + rows.n * (kTile / 2 + 1) + 6 * W);
    queries_ = scratch.narrow(all * D_);
    weights_ = scratch.narrow(rows.n * kTile);
    acc_ = scratch.take(all * D_);
    top_ = scratch.take(all);
    total_ = scratch.take(all * W);
    limits_ = scratch.whole(rows.n);
    for (int64_t m = 0; m < rows.n; ++m) limits_[m] = task.limits[rows.at[m].token];
    for (int64_t head = 0; head < task.num_heads; ++head)
      for (int64_t m = 0; m < rows.n; ++m)
        std::memcpy(queries_ + (head * rows.n + m) * D_,
                    query(call, task, first_head(call, task, head), rows.at[m]),
                    D_ * sizeof(uint16_t));
    std::fill_n(acc_, all * D_, 0.0f);
    std::fill_n(top_, all, kNever);
    std::fill_n(total_, all * W, 0.0f);
  }

  void tile(int64_t head, const Tile& t) {
    const int64_t row = head * rows_.n;
    switch (rows_.n) {
      case 1: return of<1>(row, t);
      case 2: return of<2>(row, t);
      case 3: return of<3>(row, t);
      case 4: return of<4>(row, t);
      case 5: return of<5>(row, t);
      default: return of<6>(row, t);
    }
  }

  void finish(const Call& call, const Task& task, const Partials& partials) const {
    for (int64_t head = 0; head < task.num_heads; ++head) {
      const int64_t first = first_head(call, task, head);
      for (int64_t m = 0; m < rows_.n; ++m) {
        const int64_t row = head * rows_.n + m;
        const float total = _mm512_reduce_add_ps(_mm512_loadu_ps(total_ + row * W));
        const float factor = put_sums(call, task, partials, first, rows_.at[m], top_[row], total);
        for (int64_t d = 0; d < D_; d += 2 * W) {
          __m512 x[2];
          unweave(acc_ + row * D_ + d, factor, x);
          put(call, task, partials, first, rows_.at[m], d, x[0], x[1]);
        }
      }
    }
  }

 private:
  // R rows of one kv head.
  template <int R>
  void of(int64_t row, const Tile& t) {
    const int count = int((t.n + W - 1) / W);
    const uint16_t* queries = queries_ + row * D_;
    __m512 scores[R][kVectors];
    for (int v = 0; v < count; ++v) {
      __m512 sum[R][2];
      for (auto& x : sum) x[0] = x[1] = _mm512_setzero_ps();
      for (int64_t d = 0; d < D_; d += 2 * W) {
        F x[W];
        turned(t.keys + v * W, d, x);
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i) {
          soon(t.next_keys[v * W + i] + d);
          for (int r = 0; r < R; ++r)
            sum[r][i % 2] = dot(sum[r][i % 2], (__m512bh)x[i], both(queries + r * D_ + d + 2 * i));
        }
      }
      for (int r = 0; r < R; ++r) scores[r][v] = _mm512_add_ps(sum[r][0], sum[r][1]);
    }
    for (int r = 0; r < R; ++r) {
      for (int v = count; v < kVectors; ++v) scores[r][v] = _mm512_set1_ps(kNever);
      soften(row, r, std::clamp<int64_t>(limits_[r] - t.start, 0, t.n), scores[r]);
    }
    float* acc = acc_ + row * D_;
    for (int64_t d = 0; d < D_; d += kTogether) {
      auto at = [&](int64_t j, __m512bh* x, int64_t c) {
        const int64_t at = d + c * 2 * W;
        soon(t.next_values[2 * j] + at);
        soon(t.next_values[2 * j + 1] + at);
        weave(t.values[2 * j] + at, t.values[2 * j + 1] + at, x + 2 * c);
      };
      if (D_ - d >= kTogether) {
        add<R, 4>(acc + d, D_, weights_, (t.n + 1) / 2, [&](int64_t j, __m512bh* x) {
          at(j, x, 0);
          at(j, x, 1);
        });
      } else {
        add<R, 2>(acc + d, D_, weights_, (t.n + 1) / 2,
                  [&](int64_t j, __m512bh* x) { at(j, x, 0); });
      }
    }
  }

  // Turn the products of row r of those from `first` on into weights 2^(score - top), rescale what
  // was summed before. Tokens from `seen` on get no weight.
  void soften(int64_t first, int64_t r, int64_t seen, __m512* x) {
    uint16_t* weights = weights_ + r * kTile;
    if (seen == 0) {
      std::memset(weights, 0, kTile * sizeof(uint16_t));
      return;
    }
    if (seen < kTile) {
      for (int v = 0; v < kVectors; ++v) {
        const int64_t left = std::clamp<int64_t>(seen - v * W, 0, W);
        x[v] = _mm512_mask_mov_ps(_mm512_set1_ps(kNever), __mmask16((1u << left) - 1), x[v]);
      }
    }
    const int64_t row = first + r;
    __m512 most = x[0];
    for (int v = 1; v < kVectors; ++v) most = _mm512_max_ps(most, x[v]);
    const __m512 unit = _mm512_set1_ps(unit_);
    __m512 top = _mm512_set1_ps(top_[row]);
    __m512 total = _mm512_loadu_ps(total_ + row * W);
    if (_mm512_cmp_ps_mask(_mm512_fmsub_ps(most, unit, top), _mm512_set1_ps(kSlack), _CMP_GT_OQ)) {
      const float highest = _mm512_reduce_max_ps(most) * unit_;
      const __m512 decay = exp2_(_mm512_set1_ps(top_[row] - highest));
      total = _mm512_mul_ps(total, decay);
      float* acc = acc_ + row * D_;
      for (int64_t d = 0; d < D_; d += W)
        _mm512_storeu_ps(acc + d, _mm512_mul_ps(_mm512_loadu_ps(acc + d), decay));
      top_[row] = highest;
      top = _mm512_set1_ps(highest);
    }
    for (int v = 0; v < kVectors; ++v) {
      x[v] = exp2_(_mm512_fmsub_ps(x[v], unit, top));
      total = _mm512_add_ps(total, x[v]);
      _mm256_storeu_si256((__m256i*)(weights + v * W), (__m256i)_mm512_cvtneps_pbh(x[v]));
    }
    _mm512_storeu_ps(total_ + row * W, total);
  }

  int64_t D_;
  Rows rows_;
  float unit_;
  int32_t* limits_;               // [n]
  uint16_t *queries_, *weights_;  // [heads * n, D], [n, kTile]
  float *acc_, *top_, *total_;    // [heads * n, D], [heads * n], [heads * n, W]
};

}  // namespace
}  // namespace SGJAX_ISA
}  // namespace sgjax
