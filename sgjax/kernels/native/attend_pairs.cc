// Attention for processors that multiply pairs of bfloat16, where queries and pool are bfloat16.
//
// Scores and weighted sums are products of pairs, added in float32; the softmax is float32, its
// weights are rounded to bfloat16 for the second product. A tile of 64 tokens is turned so that 16
// tokens fill a vector of scores, and its values are woven so that two tokens' lie side by side.
// Few rows (decode: the Q query heads of a kv head) take both from registers; many rows (query
// blocks, shared prefixes) from the turned tile in memory, six rows at a time.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "attend.h"
#include "pairs.h"
#include "scratch.h"

namespace sgjax {
namespace SGJAX_ISA {
namespace {

constexpr int kRowBlock = 6;

struct Tile {
  const uint16_t *keys[kTile], *values[kTile];  // those past the end repeat the first
  // What is read next. Pages lie anywhere, so it is told in advance, little by little.
  const uint16_t *next_keys[kTile], *next_values[kTile];
  int64_t start, n;
};

inline void soon(const uint16_t* p) { __builtin_prefetch(p, 0, 2); }

// R rows of one token.
template <int R>
void few(const State& s, int64_t D, int64_t row, const Tile& t) {
  const int count = int((t.n + W - 1) / W);
  const uint16_t* queries = s.queries + row * D;
  __m512 scores[R][kVectors];
  for (int v = 0; v < count; ++v) {
    __m512 sum[R][2];
    for (auto& x : sum) x[0] = x[1] = _mm512_setzero_ps();
    for (int64_t d = 0; d < D; d += 2 * W) {
      F x[W];
      turned(t.keys + v * W, d, x);
#pragma GCC unroll 16
      for (int i = 0; i < W; ++i) {
        soon(t.next_keys[v * W + i] + d);
        for (int r = 0; r < R; ++r)
          sum[r][i % 2] = dot(sum[r][i % 2], (__m512bh)x[i], both(queries + r * D + d + 2 * i));
      }
    }
    for (int r = 0; r < R; ++r) scores[r][v] = _mm512_add_ps(sum[r][0], sum[r][1]);
  }
  for (int r = 0; r < R; ++r) {
    for (int v = count; v < kVectors; ++v) scores[r][v] = _mm512_set1_ps(kNever);
    soften<kVectors>(s, D, row + r, t.n, scores[r], s.weights + r * kTile);
  }
  float* acc = s.acc + row * D;
  for (int64_t d = 0; d < D; d += kTogether) {
    auto at = [&](int64_t j, __m512bh* x, int64_t c) {
      const int64_t at = d + c * 2 * W;
      soon(t.next_values[2 * j] + at);
      soon(t.next_values[2 * j + 1] + at);
      weave(t.values[2 * j] + at, t.values[2 * j + 1] + at, x + 2 * c);
    };
    if (D - d >= kTogether) {
      add<R, 4>(acc + d, D, s.weights, (t.n + 1) / 2, [&](int64_t j, __m512bh* x) {
        at(j, x, 0);
        at(j, x, 1);
      });
    } else {
      add<R, 2>(acc + d, D, s.weights, (t.n + 1) / 2,
                [&](int64_t j, __m512bh* x) { at(j, x, 0); });
    }
  }
}

// Scores of R rows for V * 16 tokens of the turned tile.
template <int R, int V>
void score(const uint16_t* queries, int64_t D, const uint16_t* keys, float* scores) {
  __m512 sum[R][V];
#pragma GCC unroll 8
  for (auto& line : sum)
#pragma GCC unroll 8
    for (auto& x : line) x = _mm512_setzero_ps();
  for (int64_t d = 0; d < D; d += 2) {
    __m512bh x[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) x[v] = pairs(keys + d * kTile + v * 2 * W);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512bh query = both(queries + r * D + d);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[r][v] = dot(sum[r][v], query, x[v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) _mm512_storeu_ps(scores + r * kTile + v * W, sum[r][v]);
}

// How many of a tile's tokens row m of a head sees.
inline int64_t seen_by(const State& s, int64_t m, const Tile& t) {
  return std::clamp<int64_t>(s.limits[m] - t.start, 0, t.n);
}

// Weights of R rows for V * 16 tokens of the turned tile.
template <int R, int V>
void weigh(const State& s, int64_t D, int64_t row, int64_t m, const Tile& t) {
  score<R, V>(s.queries + row * D, D, s.keys, s.scores);
  for (int r = 0; r < R; ++r) {
    __m512 x[V];
    for (int v = 0; v < V; ++v) x[v] = _mm512_loadu_ps(s.scores + r * kTile + v * W);
    if (const int64_t seen = seen_by(s, m + r, t)) {
      soften<V>(s, D, row + r, seen, x, s.weights + r * kTile);
    } else {
      std::memset(s.weights + r * kTile, 0, kTile * sizeof(uint16_t));
    }
  }
}

// R rows from row m of a head on, whose first is `row`.
template <int R>
void some(const State& s, int64_t D, int64_t row, int64_t m, const Tile& t) {
  const int64_t most = seen_by(s, m + R - 1, t);  // limits never fall
  if (most == 0) return;
  const int count = int((most + W - 1) / W);
  switch (count) {
    case 1: weigh<R, 1>(s, D, row, m, t); break;
    case 2: weigh<R, 2>(s, D, row, m, t); break;
    case 3: weigh<R, 3>(s, D, row, m, t); break;
    default: weigh<R, 4>(s, D, row, m, t);
  }
  for (int64_t d = 0; d < D; d += kTogether) {
    const uint16_t* values = s.values + 2 * d;
    auto woven = [&](int64_t j, __m512bh* x, int count) {
      for (int v = 0; v < count; ++v) x[v] = pairs(values + j * 2 * D + v * 2 * W);
    };
    float* acc = s.acc + row * D + d;
    if (D - d >= kTogether) {
      add<R, 4>(acc, D, s.weights, count * W / 2, [&](int64_t j, __m512bh* x) { woven(j, x, 4); });
    } else {
      add<R, 2>(acc, D, s.weights, count * W / 2, [&](int64_t j, __m512bh* x) { woven(j, x, 2); });
    }
  }
}

void many(const State& s, int64_t D, int64_t head, const Tile& t) {
  const int count = int((t.n + W - 1) / W);
  for (int v = 0; v < count; ++v)
    for (int64_t d = 0; d < D; d += 2 * W) {
      F x[W];
      turned(t.keys + v * W, d, x);
      for (int i = 0; i < W; ++i)
        _mm512_storeu_ps(s.keys + (d + 2 * i) * kTile + v * 2 * W, (__m512)x[i]);
    }
  for (int64_t j = 0; j < count * W / 2; ++j)
    for (int64_t d = 0; d < D; d += 2 * W) {
      __m512bh x[2];
      weave(t.values[2 * j] + d, t.values[2 * j + 1] + d, x);
      for (int v = 0; v < 2; ++v)
        _mm512_storeu_si512(s.values + j * 2 * D + 2 * (d + v * W), (__m512i)x[v]);
    }
  for (int64_t m = 0; m < s.M; m += kRowBlock) {
    const int64_t rows = std::min<int64_t>(kRowBlock, s.M - m), row = head * s.M + m;
    switch (rows) {
      case 1: some<1>(s, D, row, m, t); break;
      case 2: some<2>(s, D, row, m, t); break;
      case 3: some<3>(s, D, row, m, t); break;
      case 4: some<4>(s, D, row, m, t); break;
      case 5: some<5>(s, D, row, m, t); break;
      default: some<6>(s, D, row, m, t);
    }
  }
}

void run(const Call& call, const Task& task, const State& s) {
  const int64_t K = call.K, D = call.D, S = call.S;
  const auto* k_pool = static_cast<const uint16_t*>(call.k_pool);
  const auto* v_pool = static_cast<const uint16_t*>(call.v_pool);
  const int32_t* pages = call.table + task.row * call.P;
  int64_t at[2 * kTile];  // offsets of this tile's tokens and the next one's
  auto find = [&](int64_t start, int64_t* to) {
    int64_t page = start / S, in = start % S;
    const int64_t n = std::clamp<int64_t>(task.end - start, 0, kTile);
    for (int64_t i = 0; i < n; ++i) {
      to[i] = (int64_t{pages[page]} * S + in) * K * D + task.head * D;
      if (++in == S) in = 0, ++page;
    }
    std::fill(to + n, to + kTile, n ? to[0] : at[0]);
  };
  find(task.start, at);
  Tile t;
  for (t.start = task.start; t.start < task.end; t.start += kTile) {
    t.n = std::min<int64_t>(task.end - t.start, kTile);
    find(t.start + kTile, at + kTile);
    for (int64_t h = 0; h < task.num_heads; ++h) {
      const bool last = h + 1 == task.num_heads;
      const int64_t* next = last ? at + kTile : at;
      const int64_t next_head = last ? 0 : h + 1;
      for (int64_t i = 0; i < kTile; ++i) {
        t.keys[i] = k_pool + at[i] + h * D;
        t.values[i] = v_pool + at[i] + h * D;
        t.next_keys[i] = k_pool + next[i] + next_head * D;
        t.next_values[i] = v_pool + next[i] + next_head * D;
      }
      switch (task.num_tokens == 1 ? s.M : 0) {
        case 1: few<1>(s, D, h * s.M, t); break;
        case 2: few<2>(s, D, h * s.M, t); break;
        case 3: few<3>(s, D, h * s.M, t); break;
        case 4: few<4>(s, D, h * s.M, t); break;
        default: many(s, D, h, t);
      }
    }
    std::copy_n(at + kTile, kTile, at);
  }
}

// Call f(row, query head, index of the token in the task) for all rows of a task.
template <typename F>
inline void each_row(const Call& call, const Task& task, F f) {
  const int64_t Q = call.H / call.K;
  int64_t row = 0;
  for (int64_t head = task.head; head < task.head + task.num_heads; ++head)
    for (int64_t token = 0; token < task.num_tokens; ++token)
      for (int64_t q = 0; q < Q; ++q) f(row++, head * Q + q, token);
}

void begin(const Call& call, const Task& task, const State& s) {
  const auto* queries = static_cast<const uint16_t*>(call.q);
  const int64_t D = call.D;
  each_row(call, task, [&](int64_t row, int64_t head, int64_t token) {
    const uint16_t* q = queries + (task.tokens[token] * call.H + head) * D;
    for (int64_t d = 0; d < D; d += 2 * W)
      _mm512_storeu_si512(s.queries + row * D + d, _mm512_loadu_si512(q + d));
    for (int64_t d = 0; d < D; d += W)
      _mm512_storeu_ps(s.acc + row * D + d, _mm512_setzero_ps());
    _mm512_storeu_ps(s.total + row * W, _mm512_setzero_ps());
    s.top[row] = kNever;
  });
}

void finish(const Call& call, const Task& task, const Partials& partials, const State& s) {
  const int64_t D = call.D;
  each_row(call, task, [&](int64_t row, int64_t head, int64_t token) {
    const int64_t slot = task.slots[token], at = slot * call.H + head;
    const float total = _mm512_reduce_add_ps(_mm512_loadu_ps(s.total + row * W));
    if (slot >= 0) {
      partials.top[at] = s.top[row] * kLn2;
      partials.total[at] = total;
    }
    for (int64_t d = 0; d < D; d += 2 * W) {
      __m512 x[2];
      unweave(s.acc + row * D + d, slot < 0 ? 1.0f / total : 1.0f, x);
      if (slot < 0) {
        auto* out = static_cast<uint16_t*>(call.out) + (task.tokens[token] * call.H + head) * D;
        _mm512_storeu_si512(out + d, (__m512i)_mm512_cvtne2ps_pbh(x[1], x[0]));
      } else {
        _mm512_storeu_ps(partials.acc + at * D + d, x[0]);
        _mm512_storeu_ps(partials.acc + at * D + d + W, x[1]);
      }
    }
  });
}

}  // namespace

void attend(const Call& call, const Task& task, const Partials& partials) {
  const int64_t D = call.D;
  if (call.wide_q || call.wide_pool || D % (2 * W)) return avx512::attend(call, task, partials);
  static thread_local Scratch scratch;
  State s;
  s.M = task.num_tokens * (call.H / call.K);
  s.unit = kLog2e / std::sqrt(float(D));
  const int64_t rows = s.M * task.num_heads;
  scratch.reset(rows * (2 * D + W + 1) + s.M + kRowBlock * 2 * kTile + 2 * kTile * D + 9 * 16);
  auto narrow = [&](int64_t n) { return reinterpret_cast<uint16_t*>(scratch.take((n + 1) / 2)); };
  s.queries = narrow(rows * D);
  s.keys = narrow(kTile * D);
  s.values = narrow(kTile * D);
  s.weights = narrow(kRowBlock * kTile);
  s.acc = scratch.take(rows * D);
  s.top = scratch.take(rows);
  s.total = scratch.take(rows * W);
  s.scores = scratch.take(kRowBlock * kTile);
  auto* limits = reinterpret_cast<int32_t*>(scratch.take(s.M));
  for (int64_t m = 0; m < s.M; ++m) limits[m] = task.limits[m / (call.H / call.K)];
  s.limits = limits;
  begin(call, task, s);
  run(call, task, s);
  finish(call, task, partials, s);
}

void merge(const Call& call, const Partials& partials, int64_t token, int64_t first,
           int64_t count) {
  avx512::merge(call, partials, token, first, count);
}

}  // namespace SGJAX_ISA
}  // namespace sgjax
