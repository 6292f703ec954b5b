// Attention of some queries to one range of tokens, by online softmax over tiles of 64 tokens.
//
// Compiled once for each instruction set, see vector.h. All arithmetic is in float32.
//
// Few rows (decode: the Q query heads of a kv head) take scores as dot products along the head;
// many rows (query blocks, shared prefixes) first turn the tile of keys, so that scores, too, are
// a product of matrices that runs along the tokens.

#include "attend.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "scratch.h"
#include "vector.h"

namespace sgjax {
namespace SGJAX_ISA {
namespace {

constexpr int kTile = 64;     // tokens
constexpr int kFew = 8;       // up to so many rows, dot products are cheaper than turning the keys
constexpr int kBlockRows = 6; // of the register block of a product
constexpr int kBlockVectors = W == 8 ? 2 : 4;

// c[R, V * W] = (add ? c : 0) + a[R, n] * rows, where rows[i] points to V * W elements.
template <int R, int V, typename T>
inline void block(const float* a, int64_t lda, const T* const* rows, int64_t at, int64_t n,
                  float* c, int64_t ldc, bool add) {
  F acc[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) acc[r][v] = add ? load(c + r * ldc + v * W) : F{};
  for (int64_t i = 0; i < n; ++i) {
    const T* row = rows[i] + at;
    F x[V];
    for (int v = 0; v < V; ++v) x[v] = load(row + v * W);
    for (int r = 0; r < R; ++r) {
      F y = splat(a[r * lda + i]);
      for (int v = 0; v < V; ++v) acc[r][v] += y * x[v];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) store(c + r * ldc + v * W, acc[r][v]);
}

template <int R, typename T>
inline void block_of(int V, const float* a, int64_t lda, const T* const* rows, int64_t at,
                     int64_t n, float* c, int64_t ldc, bool add) {
  switch (V) {
    case 1: return block<R, 1>(a, lda, rows, at, n, c, ldc, add);
    case 2: return block<R, 2>(a, lda, rows, at, n, c, ldc, add);
    case 3: return block<R, 3>(a, lda, rows, at, n, c, ldc, add);
    default: return block<R, 4>(a, lda, rows, at, n, c, ldc, add);
  }
}

// c[M, N] = (add ? c : 0) + a[M, n] * rows, N a multiple of W.
template <typename T>
void product(int64_t M, int64_t N, int64_t n, const float* a, int64_t lda, const T* const* rows,
             float* c, int64_t ldc, bool add) {
  for (int64_t j = 0; j < N; j += kBlockVectors * W) {
    int64_t left = (N - j) / W;
    int V = left < kBlockVectors ? int(left) : kBlockVectors;
    for (int64_t m = 0; m < M; m += kBlockRows) {
      const float* am = a + m * lda;
      float* cm = c + m * ldc + j;
      switch (M - m) {
        case 1: block_of<1>(V, am, lda, rows, j, n, cm, ldc, add); break;
        case 2: block_of<2>(V, am, lda, rows, j, n, cm, ldc, add); break;
        case 3: block_of<3>(V, am, lda, rows, j, n, cm, ldc, add); break;
        case 4: block_of<4>(V, am, lda, rows, j, n, cm, ldc, add); break;
        case 5: block_of<5>(V, am, lda, rows, j, n, cm, ldc, add); break;
        default: block_of<kBlockRows>(V, am, lda, rows, j, n, cm, ldc, add);
      }
    }
  }
}

// scores[M, kTile] = queries[M, N] dot rows, W rows at a time; rows past n repeat row 0.
template <typename T>
void dots(int64_t M, int64_t N, int64_t n, const float* queries, const T* const* rows,
          float* scores) {
  F acc[kFew][W];
  for (int64_t t = 0; t < n; t += W) {
    for (int i = 0; i < W; ++i) {
      const T* row = rows[t + i < n ? t + i : 0];
      for (int64_t m = 0; m < M; ++m) acc[m][i] = F{};
      for (int64_t d = 0; d < N; d += 4 * W) {
        F x[4];
        const int V = N - d < 4 * W ? int((N - d) / W) : 4;
        for (int v = 0; v < V; ++v) x[v] = load(row + d + v * W);
        for (int64_t m = 0; m < M; ++m) {
          const float* query = queries + m * N + d;
          F sum = acc[m][i];
          for (int v = 0; v < V; ++v) sum += x[v] * load(query + v * W);
          acc[m][i] = sum;
        }
      }
    }
    for (int64_t m = 0; m < M; ++m) store(scores + m * kTile + t, sums(acc[m]));
  }
}

// Copy rows of D elements to float32 rows of N lanes, zero behind D.
template <typename T>
void widen_rows(int64_t n, int64_t D, int64_t N, const T* const* rows, float* to) {
  for (int64_t i = 0; i < n; ++i) {
    int64_t d = 0;
    for (; d + W <= D; d += W) store(to + i * N + d, load(rows[i] + d));
    for (; d < N; ++d) to[i * N + d] = d < D ? widen(rows[i][d]) : 0.0f;
  }
}

// Queries, scores and running sums of one task.
struct State {
  int64_t M, N;  // rows of a kv head, lanes of a row
  float *queries, *acc, *top, *total, *scores, *keys, *turned, *values;
  const float* const* lines;  // [D] rows of `turned`
};

// Turn scores into weights exp(score - top), rescale what was summed before.
void soften(const State& s, int64_t row, int64_t seen) {
  float* x = s.scores + (row % s.M) * kTile;
  for (int64_t t = seen; t < kTile; ++t) x[t] = -INFINITY;
  F most = load(x);
  for (int t = W; t < kTile; t += W) {
    F y = load(x + t);
    I more = y > most;
    most = (F)(((I)y & more) | ((I)most & ~more));
  }
  const float top = largest(most);
  if (top > s.top[row]) {
    const float decay = exp_(s.top[row] - top);
    s.total[row] *= decay;
    float* acc = s.acc + row * s.N;
    for (int64_t d = 0; d < s.N; d += W) store(acc + d, load(acc + d) * decay);
    s.top[row] = top;
  }
  F sum = F{};
  for (int t = 0; t < kTile; t += W) {
    F y = exp_(load(x + t) - splat(s.top[row]));
    sum += y;
    store(x + t, y);
  }
  float total = 0;
  for (int i = 0; i < W; ++i) total += sum[i];
  s.total[row] += total;
}

// Attend to one tile of n tokens from position `start` on, for one kv head.
template <typename T>
void tile(const Call& call, const Task& task, const State& s, int64_t head, int64_t start,
          int64_t n, const T* const* keys, const T* const* values) {
  const int64_t Q = call.H / call.K, D = call.D, M = s.M, N = s.N;
  const float* queries = s.queries + head * M * N;
  const bool few = M <= kFew, padded = N != D;
  const float* rows[kTile];
  auto point = [&](float* at, int64_t count, int64_t width) {
    for (int64_t i = 0; i < count; ++i) rows[i] = at + i * width;
  };
  if (few && !padded) {
    dots(M, N, n, queries, keys, s.scores);
  } else {
    widen_rows(n, D, N, keys, s.keys);
    if (few) {
      point(s.keys, n, N);
      dots(M, N, n, queries, rows, s.scores);
    } else {
      // Tokens past n are whatever was there: their scores are overwritten.
      for (int64_t d = 0; d < N; d += W)
        for (int t = 0; t < kTile; t += W) {
          F v[W];
          for (int i = 0; i < W; ++i) v[i] = load(s.keys + (t + i) * N + d);
          turn(v);
          for (int i = 0; i < W; ++i) store(s.turned + (d + i) * kTile + t, v[i]);
        }
      product<float>(M, kTile, D, queries, N, s.lines, s.scores, kTile, false);
    }
  }
  for (int64_t m = 0; m < M; ++m) {
    const int64_t seen = task.limits[m / Q] - start;
    soften(s, head * M + m, seen < 0 ? 0 : seen < n ? seen : n);
  }
  float* acc = s.acc + head * M * N;
  if (few && !padded) {
    product(M, N, n, s.scores, kTile, values, acc, N, true);
  } else {
    widen_rows(n, D, N, values, s.values);
    point(s.values, n, N);
    product<float>(M, N, n, s.scores, kTile, rows, acc, N, true);
  }
}

template <typename T>
void run(const Call& call, const Task& task, const State& s) {
  const int64_t K = call.K, D = call.D, S = call.S;
  const T* k_pool = static_cast<const T*>(call.k_pool);
  const T* v_pool = static_cast<const T*>(call.v_pool);
  const int32_t* pages = call.table + task.row * call.P;
  const int64_t bytes = task.num_heads * D * int64_t(sizeof(T));
  auto offset = [&](int64_t position) {
    return (int64_t{pages[position / S]} * S + position % S) * K * D + task.head * D;
  };
  const T *keys[kTile], *values[kTile];
  for (int64_t start = task.start; start < task.end; start += kTile) {
    const int64_t n = task.end - start < kTile ? task.end - start : kTile;
    const int64_t next = task.end - start - n < kTile ? task.end - start - n : kTile;
    for (int64_t t = 0; t < next; ++t) {  // pages lie anywhere: tell the next tile's in advance
      const int64_t at = offset(start + n + t);
      for (int64_t b = 0; b < bytes; b += 64) {
        __builtin_prefetch(reinterpret_cast<const char*>(k_pool + at) + b, 0, 2);
        __builtin_prefetch(reinterpret_cast<const char*>(v_pool + at) + b, 0, 2);
      }
    }
    for (int64_t h = 0; h < task.num_heads; ++h) {
      for (int64_t t = 0; t < n; ++t) {
        const int64_t at = offset(start + t) + h * D;
        keys[t] = k_pool + at;
        values[t] = v_pool + at;
      }
      tile(call, task, s, h, start, n, keys, values);
    }
  }
}

template <typename T>
void put(T* out, int64_t D, const float* x, float factor) {
  int64_t d = 0;
  for (; d + W <= D; d += W) {
    const F y = load(x + d) * splat(factor);
    if constexpr (sizeof(T) == sizeof(float)) {
      store(out + d, y);
    } else {
      store(out + d, narrow(y));
    }
  }
  for (; d < D; ++d) {
    if constexpr (sizeof(T) == sizeof(float)) {
      out[d] = x[d] * factor;
    } else {
      out[d] = narrow(x[d] * factor);
    }
  }
}

// Put a row's D values, times a factor, at `at` of the output.
void put(const Call& call, int64_t at, const float* x, float factor) {
  if (call.wide_q) {
    put(static_cast<float*>(call.out) + at, call.D, x, factor);
  } else {
    put(static_cast<uint16_t*>(call.out) + at, call.D, x, factor);
  }
}

}  // namespace

void attend(const Call& call, const Task& task, const Partials& partials) {
  static thread_local Scratch scratch;
  const int64_t Q = call.H / call.K, D = call.D, N = (D + W - 1) / W * W;
  const int64_t M = task.num_tokens * Q, all = M * task.num_heads;
  scratch.reset(2 * all * N + 2 * all + M * kTile + 3 * kTile * N + 8 * 16);
  State s;
  s.M = M, s.N = N;
  s.queries = scratch.take(all * N);
  s.acc = scratch.take(all * N);
  s.top = scratch.take(all);
  s.total = scratch.take(all);
  s.scores = scratch.take(M * kTile);
  s.keys = scratch.take(kTile * N);
  s.turned = scratch.take(kTile * N);
  s.values = scratch.take(kTile * N);
  static thread_local std::vector<const float*> lines;
  lines.resize(D);
  for (int64_t d = 0; d < D; ++d) lines[d] = s.turned + d * kTile;
  s.lines = lines.data();
  std::memset(s.queries, 0, all * N * sizeof(float));
  std::memset(s.acc, 0, all * N * sizeof(float));
  const float scale = 1.0f / std::sqrt(float(D));
  for (int64_t row = 0; row < all; ++row) {
    const int64_t head = task.head + row / M, m = row % M;
    const int64_t at = (task.tokens[m / Q] * call.H + head * Q + m % Q) * D;
    s.top[row] = -INFINITY, s.total[row] = 0;
    for (int64_t d = 0; d < D; ++d)
      s.queries[row * N + d] =
          scale * (call.wide_q ? static_cast<const float*>(call.q)[at + d]
                               : widen(static_cast<const uint16_t*>(call.q)[at + d]));
  }
  call.wide_pool ? run<float>(call, task, s) : run<uint16_t>(call, task, s);
  for (int64_t row = 0; row < all; ++row) {
    const int64_t head = task.head + row / M, m = row % M;
    const int64_t h = head * Q + m % Q, token = m / Q, slot = task.slots[token];
    const float* acc = s.acc + row * N;
    if (slot < 0) {
      put(call, (task.tokens[token] * call.H + h) * D, acc, 1.0f / s.total[row]);
    } else {
      partials.top[slot * call.H + h] = s.top[row];
      partials.total[slot * call.H + h] = s.total[row];
      std::memcpy(partials.acc + (slot * call.H + h) * D, acc, D * sizeof(float));
    }
  }
}

void merge(const Call& call, const Partials& partials, int64_t token, int64_t first,
           int64_t count) {
  static thread_local std::vector<float> sum;
  sum.resize(call.D);
  for (int64_t h = 0; h < call.H; ++h) {
    float top = -INFINITY, total = 0;
    for (int64_t s = first; s < first + count; ++s)
      top = std::fmax(top, partials.top[s * call.H + h]);
    std::memset(sum.data(), 0, call.D * sizeof(float));
    for (int64_t s = first; s < first + count; ++s) {
      const float weight = exp_(partials.top[s * call.H + h] - top);
      const float* acc = partials.acc + (s * call.H + h) * call.D;
      total += weight * partials.total[s * call.H + h];
      for (int64_t d = 0; d < call.D; ++d) sum[d] += weight * acc[d];
    }
    put(call, (token * call.H + h) * call.D, sum.data(), 1.0f / total);
  }
}

}  // namespace SGJAX_ISA
}  // namespace sgjax
