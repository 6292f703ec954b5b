// Products of a few to many rows of activations with weights as checkpoints store them, [O, I].
//
// A float product takes dot products along I, so that weights are read in place: a tile of 4 rows
// of weights and W / 4 of activations fills one vector with sums. The order of additions does not
// depend on how many rows there are, so a token's result is the same in every batch. Where the
// processor multiplies pairs of bfloat16, activations stay bfloat16; else they are kept as float32.
//
// Where the processor multiplies pairs of bfloat16, weights are packed when they are loaded: sixteen
// rows fill one vector with sums, which need no adding up at the end, and a tile reads less.
//
// int8 products take four columns of sixteen rows at a time, exactly, in int32; every group of 64
// columns is then scaled and added in float32.

#include "linear.h"

#include <algorithm>
#include <cstdlib>

#include "vector.h"

#if defined(__AVX512BF16__) && defined(__AVX512VNNI__)
#include <immintrin.h>
#endif

namespace sgjax {
namespace SGJAX_ISA {
namespace {

constexpr int R = 4;      // rows of a tile
constexpr int N = W / R;  // tokens of a tile

struct Wide {
  using Weight = float;
  using Input = float;
  using Vector = F;
  static constexpr int64_t step = W;
  static Vector weight(const Weight* p) { return load(p); }
  static Vector input(const Input* p) { return load(p); }
  static F dot(F sum, Vector w, Vector x) { return sum + w * x; }
};

#if defined(__AVX512BF16__) && defined(__AVX512VNNI__)
struct Narrow {
  using Weight = uint16_t;
  using Input = uint16_t;
  using Vector = __m512bh;
  static constexpr int64_t step = 2 * W;
  static Vector weight(const Weight* p) { return (__m512bh)_mm512_loadu_si512(p); }
  static Vector input(const Input* p) { return (__m512bh)_mm512_loadu_si512(p); }
  static F dot(F sum, Vector w, Vector x) { return (F)_mm512_dpbf16_ps((__m512)sum, w, x); }
};
#else
struct Narrow {
  using Weight = uint16_t;
  using Input = float;  // rounded to bfloat16
  using Vector = F;
  static constexpr int64_t step = W;
  static Vector weight(const Weight* p) { return load(p); }
  static Vector input(const Input* p) { return load(p); }
  static F dot(F sum, Vector w, Vector x) { return sum + w * x; }
};
#endif

// Return the sums of 4 rows times M tokens, lane n * 4 + r. Fetches weights that lie `ahead` of
// those it reads, if they are to be read next.
template <typename D, int M>
inline F tile(const typename D::Weight* const* rows, const typename D::Input* x, int64_t stride,
              int64_t I, int64_t ahead) {
  F sum[W] = {};
  auto add = [&](const typename D::Weight* const* w, int64_t at, int64_t i) {
    typename D::Vector a[R];
    for (int r = 0; r < R; ++r) a[r] = D::weight(w[r] + at);
    for (int n = 0; n < M; ++n) {
      const typename D::Vector b = D::input(x + n * stride + i);
      for (int r = 0; r < R; ++r) sum[n * R + r] = D::dot(sum[n * R + r], a[r], b);
    }
  };
  const int64_t whole = I / D::step * D::step;
  for (int64_t i = 0; i < whole; i += D::step) {
    if (ahead)
      for (int r = 0; r < R; ++r) __builtin_prefetch(rows[r] + i + ahead);
    add(rows, i, i);
  }
  if (whole < I) {
    typename D::Weight last[R][D::step] = {};
    const typename D::Weight* lasts[R];
    for (int r = 0; r < R; ++r) {
      std::memcpy(last[r], rows[r] + whole, (I - whole) * sizeof last[r][0]);
      lasts[r] = last[r];
    }
    add(lasts, 0, whole);
  }
  return sums(sum);
}

template <typename D>
inline F tile_of(int64_t M, const typename D::Weight* const* rows, const typename D::Input* x,
                 int64_t stride, int64_t I, int64_t ahead) {
  if constexpr (N > 1)
    if (M == 1) return tile<D, 1>(rows, x, stride, I, ahead);
  if constexpr (N > 2) {
    if (M == 2) return tile<D, 2>(rows, x, stride, I, ahead);
    if (M == 3) return tile<D, 3>(rows, x, stride, I, ahead);
  }
  return tile<D, N>(rows, x, stride, I, ahead);
}

template <typename D>
void floats(const Matrix& m, int64_t row, int64_t rows, const Panel& x, int64_t token,
            int64_t tokens, float* out, int64_t ldo) {
  const auto* weights = static_cast<const typename D::Weight*>(m.data);
  const auto* inputs = static_cast<const typename D::Input*>(x.data) + token * x.stride;
  for (int64_t r = 0; r < rows; r += R) {
    const int64_t height = std::min<int64_t>(R, rows - r);
    const typename D::Weight* lines[R];
    for (int64_t i = 0; i < R; ++i) lines[i] = weights + (row + r + std::min(i, height - 1)) * m.I;
    for (int64_t t = 0; t < tokens; t += N) {
      const int64_t width = std::min<int64_t>(N, tokens - t);
      const int64_t ahead = t == 0 && r + 2 * R <= rows ? R * m.I : 0;
      const F sum = tile_of<D>(width, lines, inputs + t * x.stride, x.stride, m.I, ahead);
      float values[W];
      store(values, sum);
      for (int64_t n = 0; n < width; ++n)
        std::copy_n(values + n * R, height, out + (t + n) * ldo + r);
    }
  }
}

#if defined(__AVX512BF16__) && defined(__AVX512VNNI__)
constexpr int64_t kTile = 8;  // tokens of a tile of two packs, whose sums fill half the registers

// A tile of two packs, or of the last one twice, times M tokens.
template <int M>
inline void pairs(const uint16_t* const* w, const uint16_t* x, int64_t stride, __m512 (*sum)[2]) {
  __m512 s[M][2];
#pragma GCC unroll 8
  for (int n = 0; n < M; ++n) s[n][0] = s[n][1] = _mm512_setzero_ps();
  for (int64_t i = 0; i < stride; i += 2) {
    const auto a = (__m512bh)_mm512_loadu_si512(w[0] + i * kPack);
    const auto b = (__m512bh)_mm512_loadu_si512(w[1] + i * kPack);
    if (M <= 2) {  // the memory is what takes time
      __builtin_prefetch(w[0] + i * kPack + 1024);
      __builtin_prefetch(w[1] + i * kPack + 1024);
    }
#pragma GCC unroll 8  // or the sums stay in memory
    for (int n = 0; n < M; ++n) {
      int32_t two;
      std::memcpy(&two, x + n * stride + i, 4);
      const auto c = (__m512bh)_mm512_set1_epi32(two);
      s[n][0] = _mm512_dpbf16_ps(s[n][0], a, c);
      s[n][1] = _mm512_dpbf16_ps(s[n][1], b, c);
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < M; ++n) sum[n][0] = s[n][0], sum[n][1] = s[n][1];
}

using Pairs = void (*)(const uint16_t* const*, const uint16_t*, int64_t, __m512 (*)[2]);
constexpr Pairs kPairs[kTile] = {pairs<1>, pairs<2>, pairs<3>, pairs<4>,
                                 pairs<5>, pairs<6>, pairs<7>, pairs<8>};

void packed(const Matrix& m, int64_t row, int64_t rows, const Panel& x, int64_t token,
            int64_t tokens, float* out, int64_t ldo) {
  const auto* weights = static_cast<const uint16_t*>(m.data);
  const auto* inputs = static_cast<const uint16_t*>(x.data) + token * x.stride;
  for (int64_t r = 0; r < rows; r += 2 * kPack) {
    const bool both = rows - r > kPack;
    const uint16_t* w[2] = {weights + (row + r) * x.stride, nullptr};
    w[1] = w[0] + (both ? kPack * x.stride : 0);
    const uint32_t there = ~0u >> (2 * kPack - std::min(2 * kPack, rows - r));
    for (int64_t t = 0; t < tokens; t += kTile) {
      const int64_t width = std::min(kTile, tokens - t);
      __m512 sum[kTile][2];
      kPairs[width - 1](w, inputs + t * x.stride, x.stride, sum);
      for (int64_t n = 0; n < width; ++n) {
        float* to = out + (t + n) * ldo + r;
        _mm512_mask_storeu_ps(to, there & 0xffff, sum[n][0]);
        _mm512_mask_storeu_ps(to + kPack, there >> kPack, sum[n][1]);
      }
    }
  }
}

// A tile of P packs times M tokens.
template <int P, int M>
inline void packs(const Matrix& m, int64_t pack, const Panel& x, int64_t token, float* out,
                  int64_t ldo, int64_t rows) {
  const int64_t groups = x.stride / kGroup, size = groups * kGroup * kPack;
  const uint8_t* codes = static_cast<const uint8_t*>(m.data) + pack * size;
  const int8_t* inputs = static_cast<const int8_t*>(x.data) + token * x.stride;
  __m512 sum[P][M];
  for (auto& line : sum)
    for (auto& s : line) s = _mm512_setzero_ps();
  for (int64_t g = 0; g < groups; ++g) {
    __m512i exact[P][M];
    for (int p = 0; p < P; ++p)
      for (int n = 0; n < M; ++n)
        exact[p][n] = _mm512_set1_epi32(x.sums[(token + n) * groups + g]);
    for (int64_t j = 0; j < kGroup; j += 4) {
      const uint8_t* at = codes + (g * kGroup + j) * kPack;
      __m512i a[P];
      for (int p = 0; p < P; ++p) {
        a[p] = _mm512_loadu_si512(at + p * size);
        if (M == 1) __builtin_prefetch(at + p * size + 2048);
      }
      for (int n = 0; n < M; ++n) {
        int32_t four;
        std::memcpy(&four, inputs + n * x.stride + g * kGroup + j, 4);
        const __m512i b = _mm512_set1_epi32(four);
        for (int p = 0; p < P; ++p) exact[p][n] = _mm512_dpbusd_epi32(exact[p][n], a[p], b);
      }
    }
    for (int p = 0; p < P; ++p) {
      const __m512 scale = _mm512_loadu_ps(m.scales + ((pack + p) * groups + g) * kPack);
      for (int n = 0; n < M; ++n) {
        const __m512 both = scale * _mm512_set1_ps(x.scales[(token + n) * groups + g]);
        sum[p][n] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(exact[p][n]), both, sum[p][n]);
      }
    }
  }
  for (int p = 0; p < P; ++p)
    for (int n = 0; n < M; ++n) {
      float values[kPack];
      _mm512_storeu_ps(values, sum[p][n]);
      const int64_t left = std::min<int64_t>(kPack, rows - p * kPack);
      std::copy_n(values, left, out + n * ldo + p * kPack);
    }
}

template <int P>
inline void packs_of(const Matrix& m, int64_t pack, const Panel& x, int64_t token, int64_t tokens,
                     float* out, int64_t ldo, int64_t rows) {
  for (int64_t t = 0; t < tokens; t += 4) {
    float* to = out + t * ldo;
    switch (tokens - t) {
      case 1: packs<P, 1>(m, pack, x, token + t, to, ldo, rows); break;
      case 2: packs<P, 2>(m, pack, x, token + t, to, ldo, rows); break;
      case 3: packs<P, 3>(m, pack, x, token + t, to, ldo, rows); break;
      default: packs<P, 4>(m, pack, x, token + t, to, ldo, rows);
    }
  }
}

void integers(const Matrix& m, int64_t row, int64_t rows, const Panel& x, int64_t token,
              int64_t tokens, float* out, int64_t ldo) {
  for (int64_t r = 0; r < rows; r += 2 * kPack) {
    const int64_t pack = (row + r) / kPack, left = rows - r;
    if (left > kPack) {
      packs_of<2>(m, pack, x, token, tokens, out + r, ldo, left);
    } else {
      packs_of<1>(m, pack, x, token, tokens, out + r, ldo, left);
    }
  }
}
#else
void integers(const Matrix& m, int64_t row, int64_t rows, const Panel& x, int64_t token,
              int64_t tokens, float* out, int64_t ldo) {
  const int64_t groups = x.stride / kGroup;
  for (int64_t r = 0; r < rows; r += kPack) {
    const int64_t pack = (row + r) / kPack, height = std::min(kPack, rows - r);
    const auto* codes = static_cast<const uint8_t*>(m.data) + pack * x.stride * kPack;
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t at = token + t;
      const int8_t* input = static_cast<const int8_t*>(x.data) + at * x.stride;
      float sum[kPack] = {};
      for (int64_t g = 0; g < groups; ++g) {
        int32_t exact[kPack];
        const int64_t from = g * kGroup;
        for (int64_t i = 0; i < kPack; ++i) exact[i] = x.sums[at * groups + g];
        for (int64_t j = 0; j < kGroup; j += 4)
          for (int64_t i = 0; i < kPack; ++i)
            for (int64_t b = 0; b < 4; ++b)
              exact[i] +=
                  int32_t{codes[(from + j) * kPack + 4 * i + b]} * int32_t{input[from + j + b]};
        for (int64_t i = 0; i < kPack; ++i)
          sum[i] += float(exact[i]) *
                    (m.scales[(pack * groups + g) * kPack + i] * x.scales[at * groups + g]);
      }
      std::copy_n(sum, height, out + t * ldo + r);
    }
  }
}
#endif

// Round a group to int8 by its largest value.
void quantize(const Panel& to, int64_t token, int64_t column, const float* x) {
  float most = 0;
  for (int64_t i = 0; i < kGroup; ++i) most = std::max(most, std::fabs(x[i]));
  const float inverse = most > 0 ? 127.0f / most : 0.0f;
  int8_t* codes = static_cast<int8_t*>(to.data) + token * to.stride + column;
  int32_t sum = 0;
  for (int64_t i = 0; i < kGroup; ++i) {
    const int32_t code = int32_t(std::nearbyint(x[i] * inverse));
    codes[i] = int8_t(code);
    sum += code;
  }
  const int64_t at = token * (to.stride / kGroup) + column / kGroup;
  to.scales[at] = most / 127.0f;
  to.sums[at] = -128 * sum;
}

template <typename T>
void put_any(const Panel& to, int64_t token, int64_t column, const T* x, int64_t n) {
  for (int64_t at = 0; at < n; at += kGroup) {
    T last[kGroup];
    const T* from = x + at;
    if (n - at < kGroup) {
      std::fill(std::copy_n(from, n - at, last), last + kGroup, T{});
      from = last;
    }
    const int64_t place = token * to.stride + column + at;
    if (to.kind == Kind::int8) {
      float group[kGroup];
      for (int64_t i = 0; i < kGroup; i += W) store(group + i, load(from + i));
      quantize(to, token, column + at, group);
    } else if (to.kind == Kind::f32) {
      float* line = static_cast<float*>(to.data) + place;
      for (int64_t i = 0; i < kGroup; i += W) store(line + i, load(from + i));
    } else {
      auto* line = static_cast<Narrow::Input*>(to.data) + place;
      for (int64_t i = 0; i < kGroup; i += W) store(line + i, narrow(load(from + i)));
    }
  }
}

}  // namespace

void product(const Matrix& m, int64_t row, int64_t rows, const Panel& x, int64_t token,
             int64_t tokens, float* out, int64_t ldo) {
  switch (m.kind) {
    case Kind::f32: return floats<Wide>(m, row, rows, x, token, tokens, out, ldo);
    case Kind::bf16: return floats<Narrow>(m, row, rows, x, token, tokens, out, ldo);
#if defined(__AVX512BF16__) && defined(__AVX512VNNI__)
    case Kind::packed: return packed(m, row, rows, x, token, tokens, out, ldo);
#else
    case Kind::packed: std::abort();  // made for avx512_bf16 alone
#endif
    case Kind::int8: return integers(m, row, rows, x, token, tokens, out, ldo);
  }
}

void put(const Panel& to, int64_t token, int64_t column, const float* x, int64_t n) {
  put_any(to, token, column, x, n);
}

void put(const Panel& to, int64_t token, int64_t column, const uint16_t* x, int64_t n) {
  put_any(to, token, column, x, n);
}

void normalize(const float* x, const float* scale, float eps, int64_t n, float* y) {
  constexpr int parts = 4;  // or each addition waits for the one before
  F part[parts] = {};
  int64_t i = 0;
  for (; i + parts * W <= n; i += parts * W)
    for (int p = 0; p < parts; ++p) part[p] += load(x + i + p * W) * load(x + i + p * W);
  for (; i + W <= n; i += W) part[0] += load(x + i) * load(x + i);
  const F sum = (part[0] + part[1]) + (part[2] + part[3]);
  float total = 0;
  for (int j = 0; j < W; ++j) total += sum[j];
  for (; i < n; ++i) total += x[i] * x[i];
  const float factor = 1.0f / std::sqrt(total / float(n) + eps);
  for (i = 0; i < n; ++i) y[i] = x[i] * factor * scale[i];
}

void gated(float* gate, const float* up, int64_t n) {
  auto both = [](F g, F u) {
    // exp_ wants x <= 0: 1 / (1 + exp(-g)) is 1 / (1 + e) for g >= 0 and e / (1 + e) below.
    const I below = g < splat(0);
    const F size = (F)(((I)g & below) | ((I)-g & ~below));
    const F e = exp_(size);
    const F top = (F)(((I)e & below) | ((I)splat(1) & ~below));
    return g * u * top / (splat(1) + e);
  };
  int64_t i = 0;
  for (; i + W <= n; i += W) store(gate + i, both(load(gate + i), load(up + i)));
  for (; i < n; ++i) gate[i] = both(splat(gate[i]), splat(up[i]))[0];
}

void add(const float* y, const int32_t* at, int64_t tokens, int64_t n, const float* base,
         float* out, int64_t ldo) {
  for (int64_t t = 0; t < tokens; ++t, y += n) {
    const int64_t line = at[t] * ldo;
    if (base) {
      for (int64_t i = 0; i < n; ++i) out[line + i] = base[line + i] + y[i];
    } else {
      std::copy_n(y, n, out + line);
    }
  }
}

void narrow(const float* x, int64_t n, uint16_t* y) {
  int64_t i = 0;
  for (; i + W <= n; i += W) store(y + i, narrow(load(x + i)));
  for (; i < n; ++i) y[i] = narrow(x[i]);
}

}  // namespace SGJAX_ISA
}  // namespace sgjax
