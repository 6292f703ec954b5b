// Attention of many rows of a kv head in pairs of bfloat16, rows in the lanes: 16 of them fill a
// vector, so that the softmax needs nothing from other lanes. Keys are read where they lie, a pair
// for all rows at a time; values are zipped, so that a pair is two tokens' value of one column.
//
// In an unnamed namespace for the reason that vector.h gives.
#pragma once

#include "pairs.h"
#include "scratch.h"

namespace sgjax {
namespace SGJAX_ISA {
namespace {

constexpr int64_t kMostVectors = 3;  // of rows of a block
constexpr int64_t kPadded = 16;      // tokens, to whose multiples a tile's are rounded up
// Weights of a group's tokens together: tops need not be exact, and are seldom worth rescaling for.
constexpr float kMostWeight = 1 << 20;

// Tokens, and columns of values, of a register block of V vectors of rows. Sums of keys' products
// leave room for the softmax of the tokens before, which is computed meanwhile.
constexpr int group_of(int V) { return V == 1 ? 16 : V == 2 ? 8 : 4; }
constexpr int columns_of(int V) { return V == 1 ? 16 : 8; }

// Rows of one kv head in V vectors, and their running sums. Tops are near the highest scores, in
// units of log 2.
struct Block {
  int64_t V;
  float unit;                    // from a product of query and key to a score
  int32_t fewest, most;          // the lowest and the highest limit
  int32_t* limits;               // [V, W] rows see positions below
  uint16_t *queries, *weights;   // [D / 2, V, W, 2], [kTile / 2, V, W, 2] of a tile
  float *acc, *top, *total;      // [D, V, W], [V, W], [V, W]
};

// A group of tokens whose products are known: [group, V, W].
struct Group {
  const float* products;
  int64_t at;     // in the tile
  int32_t start;  // position of the first
};

inline __m512bh line(const uint16_t* p) { return (__m512bh)_mm512_load_si512(p); }

// Lane by lane x beside y, rounded.
inline __m512i zipped(__m512 x, __m512 y) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(y, x));
}

// Zip 32 columns of two tokens' values.
inline void zip(const uint16_t* a, const uint16_t* b, uint16_t* to) {
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8,
                                       39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  const __m512i first = _mm512_loadu_si512(a), second = _mm512_loadu_si512(b);
  _mm512_store_si512(to, _mm512_permutex2var_epi16(first, low, second));
  _mm512_store_si512(to + 2 * W, _mm512_permutex2var_epi16(first, high, second));
}

// Add products of one pair of columns of queries and of a group's keys.
template <int V>
inline void add_products(const uint16_t* queries, const uint16_t* const* keys, int64_t d,
                         __m512 (*x)[V]) {
  __m512bh query[V];
#pragma GCC unroll 3
  for (int v = 0; v < V; ++v) query[v] = line(queries + (d * V + 2 * v) * W);
#pragma GCC unroll 16
  for (int n = 0; n < group_of(V); ++n) {
    const __m512bh key = both(keys[n] + d);
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) x[n][v] = dot(x[n][v], key, query[v]);
  }
}

// Keep sums that lie in registers, [N, V, W].
template <int V, int N>
inline void keep(const __m512 (*x)[V], float* to) {
#pragma GCC unroll 16
  for (int n = 0; n < N; ++n)
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) _mm512_store_ps(to + (n * V + v) * W, x[n][v]);
}

// Weights 2^(score - top) of vector v of a group's token n; zeros where rows do not see it.
template <int V, bool Masked>
inline __m512 weight(const Block& b, const Group& g, int n, int v, __m512 top) {
  const __m512 product = _mm512_load_ps(g.products + (n * V + v) * W);
  const __m512 x = exp2_(_mm512_fmsub_ps(product, _mm512_set1_ps(b.unit), top));
  if (!Masked) return x;
  const __m512i limits = _mm512_load_si512(b.limits + v * W);
  return _mm512_maskz_mov_ps(_mm512_cmpgt_epi32_mask(limits, _mm512_set1_epi32(g.start + n)), x);
}

// Where the weights of a group's pair of tokens n and n + 1 lie, of vector v.
template <int V>
inline uint16_t* place(const Block& b, const Group& g, int64_t n, int64_t v) {
  return b.weights + ((g.at + n) * V + 2 * v) * W;
}

// Multiply queries with the keys of the group behind g, and meanwhile turn g's products into
// weights. False if these are too large and nothing was added up: some tops must be lifted first.
template <int V, bool Masked>
inline bool step(const Block& b, int64_t D, const uint16_t* const* keys, const Group& g,
                 float* products) {
  constexpr int G = group_of(V);
  const int64_t part = D / G;
  __m512 x[G][V], sum[V], top[V];
#pragma GCC unroll 16
  for (int n = 0; n < G; ++n)
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) x[n][v] = _mm512_setzero_ps();
#pragma GCC unroll 3
  for (int v = 0; v < V; ++v) sum[v] = _mm512_setzero_ps(), top[v] = _mm512_load_ps(b.top + v * W);
  int64_t d = 0;
  for (int n = 0; n < G; n += 2) {
    __m512 w[2][V];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
#pragma GCC unroll 3
      for (int v = 0; v < V; ++v) {
        w[i][v] = weight<V, Masked>(b, g, n + i, v, top[v]);
        sum[v] = _mm512_add_ps(sum[v], w[i][v]);
        if (i) _mm512_store_si512(place<V>(b, g, n, v), zipped(w[0][v], w[1][v]));
      }
      for (const int64_t end = d + part; d < end; d += 2) add_products<V>(b.queries, keys, d, x);
    }
  }
  keep<V, G>(x, products);
  __mmask16 over = 0;
#pragma GCC unroll 3
  for (int v = 0; v < V; ++v)
    over |= _mm512_cmp_ps_mask(sum[v], _mm512_set1_ps(kMostWeight), _CMP_NLE_UQ);
  if (__builtin_expect(over, 0)) return false;
#pragma GCC unroll 3
  for (int v = 0; v < V; ++v)
    _mm512_store_ps(b.total + v * W, _mm512_add_ps(_mm512_load_ps(b.total + v * W), sum[v]));
  return true;
}

// Rescale what was summed before of vector v, and the weights of the tile's tokens up to g's.
template <int V>
inline void rescale(const Block& b, int64_t D, const Group& g, int v, __m512 decay) {
  const __m512i upper = _mm512_set1_epi32(int32_t(0xffff0000));
  auto scale = [&](float* p) { _mm512_store_ps(p, _mm512_mul_ps(_mm512_load_ps(p), decay)); };
  scale(b.total + v * W);
  for (int64_t d = 0; d < D; ++d) scale(b.acc + (d * V + v) * W);
  for (int64_t n = -g.at; n < 0; n += 2) {
    const __m512i two = _mm512_load_si512(place<V>(b, g, n, v));
    const __m512 x = _mm512_mul_ps((__m512)_mm512_slli_epi32(two, 16), decay);
    const __m512 y = _mm512_mul_ps((__m512)_mm512_and_si512(two, upper), decay);
    _mm512_store_si512(place<V>(b, g, n, v), zipped(x, y));
  }
}

// Turn a group's products into weights, after lifting tops that are too low for them.
template <int V>
[[gnu::noinline]] void lift(const Block& b, int64_t D, const Group& g) {
  constexpr int G = group_of(V);
  for (int v = 0; v < V; ++v) {
    const __m512i limits = _mm512_load_si512(b.limits + v * W);
    __m512 most = _mm512_set1_ps(kNever);
    for (int n = 0; n < G; ++n) {
      const __m512 product = _mm512_load_ps(g.products + (n * V + v) * W);
      const __mmask16 seen = _mm512_cmpgt_epi32_mask(limits, _mm512_set1_epi32(g.start + n));
      most = _mm512_mask_max_ps(most, seen, most, product);
    }
    const __m512 low = _mm512_load_ps(b.top + v * W);
    const __m512 high = _mm512_mul_ps(most, _mm512_set1_ps(b.unit));
    const __mmask16 over =
        _mm512_cmp_ps_mask(_mm512_sub_ps(high, low), _mm512_set1_ps(kSlack), _CMP_GT_OQ);
    const __m512 top = _mm512_mask_mov_ps(low, over, high);
    if (over) rescale<V>(b, D, g, v, exp2_(_mm512_sub_ps(low, top)));
    __m512 total = _mm512_load_ps(b.total + v * W);
    for (int n = 0; n < G; n += 2) {
      const __m512 x = weight<V, true>(b, g, n, v, top), y = weight<V, true>(b, g, n + 1, v, top);
      total = _mm512_add_ps(_mm512_add_ps(total, x), y);
      _mm512_store_si512(place<V>(b, g, n, v), zipped(x, y));
    }
    _mm512_store_ps(b.top + v * W, top);
    _mm512_store_ps(b.total + v * W, total);
  }
}

// Add the zipped values of `n` tokens, weighted.
template <int V>
inline void add_values(const Block& b, int64_t D, const uint16_t* values, int64_t n) {
  constexpr int C = columns_of(V);
  for (int64_t d = 0; d < D; d += C) {
    float* acc = b.acc + d * V * W;
    __m512 sum[C][V];
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c)
#pragma GCC unroll 3
      for (int v = 0; v < V; ++v) sum[c][v] = _mm512_load_ps(acc + (c * V + v) * W);
    for (int64_t j = 0; j < n; j += 2) {
      __m512bh weight[V];
#pragma GCC unroll 3
      for (int v = 0; v < V; ++v) weight[v] = line(b.weights + (j * V + 2 * v) * W);
#pragma GCC unroll 16
      for (int c = 0; c < C; ++c) {
        const __m512bh value = both(values + j * D + 2 * (d + c));
#pragma GCC unroll 3
        for (int v = 0; v < V; ++v) sum[c][v] = dot(sum[c][v], value, weight[v]);
      }
    }
    keep<V, C>(sum, acc);
  }
}

// Attend to a tile whose values are zipped.
template <int V>
void attend_tile(const Block& b, int64_t D, const Tile& t, const uint16_t* values) {
  constexpr int G = group_of(V);
  const int64_t seen = std::clamp<int64_t>(b.most - t.start, 0, t.n);
  if (seen == 0) return;
  alignas(64) float memory[2][G * V * W];
  float *products = memory[0], *next = memory[1];
  __m512 x[G][V] = {};
  for (int64_t d = 0; d < D; d += 2) add_products<V>(b.queries, t.keys, d, x);
  keep<V, G>(x, products);
  int64_t at = 0;
  for (; at + G < seen; at += G, std::swap(products, next)) {
    const Group g = {products, at, int32_t(t.start + at)};
    const uint16_t* const* keys = t.keys + at + G;
    const bool done = g.start + G <= b.fewest ? step<V, false>(b, D, keys, g, next)
                                              : step<V, true>(b, D, keys, g, next);
    if (!done) lift<V>(b, D, g);
  }
  lift<V>(b, D, {products, at, int32_t(t.start + at)});
  add_values<V>(b, D, values, at + G);
}

// Many rows, those of each kv head cut into blocks of about the same size.
class Many {
 public:
  Many(const Call& call, const Task& task, Rows rows, Scratch& scratch) : D_(call.D), rows_(rows) {
    const int64_t vectors = (rows.n + W - 1) / W;
    count_ = (vectors + kMostVectors - 1) / kMostVectors;
    const int64_t blocks = count_ * task.num_heads;
    constexpr int64_t block = sizeof(Block) / sizeof(float);
    scratch.reset(task.num_heads * vectors * W * (D_ + D_ / 2 + 3) +
                  kMostVectors * W * kTile / 2 + kTile * D_ / 2 + blocks * block + W);
    blocks_ = reinterpret_cast<Block*>(scratch.take(blocks * block));
    values_ = scratch.narrow(kTile * D_);
    uint16_t* weights = scratch.narrow(kMostVectors * W * kTile);
    for (int64_t head = 0; head < task.num_heads; ++head)
      for (int64_t i = 0; i < count_; ++i) {
        const int64_t first = vectors * i / count_, V = vectors * (i + 1) / count_ - first;
        Block& b = blocks_[head * count_ + i];
        b.V = V;
        b.unit = unit_of(call);
        b.limits = scratch.whole(V * W);
        b.queries = scratch.narrow(V * W * D_);
        b.weights = weights;
        b.acc = scratch.take(V * W * D_);
        b.top = scratch.take(V * W);
        b.total = scratch.take(V * W);
        begin(call, task, b, first_head(call, task, head), first * W);
      }
  }

  void tile(int64_t head, const Tile& t) {
    const int64_t n = (t.n + kPadded - 1) / kPadded * kPadded;
    for (int64_t j = 0; j < n; j += 2)
      for (int64_t d = 0; d < D_; d += 2 * W) {
        soon(t.next_keys[j] + d);
        soon(t.next_keys[j + 1] + d);
        soon(t.next_values[j] + d);
        soon(t.next_values[j + 1] + d);
        zip(t.values[j] + d, t.values[j + 1] + d, values_ + j * D_ + 2 * d);
      }
    for (int64_t i = 0; i < count_; ++i) {
      const Block& b = blocks_[head * count_ + i];
      switch (b.V) {
        case 1: attend_tile<1>(b, D_, t, values_); break;
        case 2: attend_tile<2>(b, D_, t, values_); break;
        default: attend_tile<3>(b, D_, t, values_);
      }
    }
  }

  void finish(const Call& call, const Task& task, const Partials& partials) const {
    for (int64_t head = 0; head < task.num_heads; ++head)
      for (int64_t i = 0, row = 0; i < count_; ++i) {
        const Block& b = blocks_[head * count_ + i];
        for (int64_t v = 0; v < b.V; ++v, row += W)
          finish(call, task, partials, b, first_head(call, task, head), row, v);
      }
  }

 private:
  // Rows from `first` on, whose first query head is `head`; those past the last repeat it.
  void begin(const Call& call, const Task& task, Block& b, int64_t head, int64_t first) const {
    const uint16_t* lines[W];
    for (int64_t v = 0; v < b.V; ++v) {
      for (int i = 0; i < W; ++i) {
        const Row row = rows_.at[std::min(first + v * W + i, rows_.n - 1)];
        lines[i] = query(call, task, head, row);
        b.limits[v * W + i] = std::min(task.limits[row.token], task.end);
      }
      for (int64_t d = 0; d < D_; d += 2 * W) {
        F x[W];
        turned(lines, d, x);
        for (int i = 0; i < W; ++i)
          _mm512_store_si512(b.queries + ((d / 2 + i) * b.V + v) * 2 * W, (__m512i)x[i]);
      }
    }
    b.fewest = b.limits[0], b.most = b.limits[b.V * W - 1];  // limits never fall
    std::fill_n(b.acc, b.V * W * D_, 0.0f);
    std::fill_n(b.total, b.V * W, 0.0f);
    std::fill_n(b.top, b.V * W, kNever);
  }

  // The rows of vector v, the first of which is row `first` of the head.
  void finish(const Call& call, const Task& task, const Partials& partials, const Block& b,
              int64_t head, int64_t first, int64_t v) const {
    const int64_t count = std::min<int64_t>(W, rows_.n - first);
    const Row* rows = rows_.at + first;
    float factor[W];
    for (int64_t i = 0; i < count; ++i)
      factor[i] = put_sums(call, task, partials, head, rows[i], b.top[v * W + i],
                           b.total[v * W + i]);
    for (int64_t d = 0; d < D_; d += 2 * W) {
      F x[2 * W];
      for (int i = 0; i < 2 * W; ++i) x[i] = load(b.acc + ((d + i) * b.V + v) * W);
      turn(x);
      turn(x + W);
      for (int64_t i = 0; i < count; ++i)
        put(call, task, partials, head, rows[i], d, (__m512)(x[i] * splat(factor[i])),
            (__m512)(x[W + i] * splat(factor[i])));
    }
  }

  int64_t D_, count_;
  Rows rows_;
  Block* blocks_;     // [heads, count]
  uint16_t* values_;  // [kTile / 2, D, 2]
};

}  // namespace
}  // namespace SGJAX_ISA
}  // namespace sgjax
