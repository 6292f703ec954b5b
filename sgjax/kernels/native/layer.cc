// Custom calls for what a layer of the Llama family computes beside attention: what comes before
// it, what comes after it, and the head. Each is a few phases of tasks; a task computes some rows of
// weights for all tokens.

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "linear.h"
#include "team.h"

namespace sgjax {
namespace {

constexpr int64_t kTokens = 128;  // most tokens of a task
constexpr int64_t kRows = 32;     // rows of weights of a task, where nothing else asks for more

#define SGJAX_KERNELS(isa)                                                             \
  Kernels { isa::product, isa::put, isa::put, isa::normalize, isa::gated, isa::add, isa::narrow }

struct Kernels {
  void (*product)(const Matrix&, int64_t, int64_t, const Panel&, int64_t, int64_t, float*, int64_t);
  void (*put)(const Panel&, int64_t, int64_t, const float*, int64_t);
  void (*put_narrow)(const Panel&, int64_t, int64_t, const uint16_t*, int64_t);
  void (*normalize)(const float*, const float*, float, int64_t, float*);
  void (*gated)(float*, const float*, int64_t);
  void (*add)(const float*, const int32_t*, int64_t, int64_t, const float*, float*, int64_t);
  void (*narrow)(const float*, int64_t, uint16_t*);
};

// 0 generic, 1 avx2, 2 avx512, 3 avx512_bf16.
Kernels kernels_of(int64_t level) {
#if defined(__x86_64__)
  if (level == 3) return SGJAX_KERNELS(avx512_bf16);
  if (level == 2) return SGJAX_KERNELS(avx512);
  if (level == 1) return SGJAX_KERNELS(avx2);
#endif
  return SGJAX_KERNELS(generic);
}

Matrix matrix(int64_t O, int64_t I, const ffi::AnyBuffer& data, const ffi::AnyBuffer& scales) {
  const Kind kind = data.element_type() == ffi::F32    ? Kind::f32
                    : data.element_type() != ffi::BF16 ? Kind::int8
                    : data.dimensions().size() == 4    ? Kind::packed
                                                       : Kind::bf16;
  return {kind, O, I, data.untyped_data(), static_cast<const float*>(scales.untyped_data())};
}

const float* floats(const ffi::AnyBuffer& buffer) {
  return static_cast<const float*>(buffer.untyped_data());
}

// The tokens of a call that are no padding; only these get rows in panels.
struct Tokens {
  const int32_t* at;
  int64_t n;
};

struct Rows {
  void* data;
  size_t width;  // bytes
};

// List them, in the calling thread's memory; the others' rows of outputs become zeros.
Tokens listed(const ffi::AnyBuffer& used, std::initializer_list<Rows> outputs) {
  static thread_local std::vector<int32_t> memory;
  const bool* flags = static_cast<const bool*>(used.untyped_data());
  memory.clear();
  for (int64_t t = 0; t < int64_t(used.element_count()); ++t) {
    if (flags[t]) {
      memory.push_back(int32_t(t));
    } else {
      for (const Rows& o : outputs) std::memset(static_cast<char*>(o.data) + t * o.width, 0, o.width);
    }
  }
  return {memory.data(), int64_t(memory.size())};
}

// The calling thread's memory for what one call's phases hand on; grows to the largest call.
class Scratch {
 public:
  explicit Scratch(size_t bytes) {
    if (memory().size() < bytes + 64) memory().resize(bytes + 64);
    at_ = memory().data() + (64 - reinterpret_cast<uintptr_t>(memory().data()) % 64) % 64;
  }
  static size_t panel_bytes(int64_t T, int64_t I) {
    return round(size_t(T) * padded(I) * 4) + 2 * round(size_t(T) * (padded(I) / kGroup) * 4);
  }
  Panel panel(Kind kind, int64_t T, int64_t I) {
    Panel x = {kind, padded(I), take(size_t(T) * padded(I) * 4), nullptr, nullptr};
    x.scales = static_cast<float*>(take(size_t(T) * (padded(I) / kGroup) * 4));
    x.sums = static_cast<int32_t*>(take(size_t(T) * (padded(I) / kGroup) * 4));
    return x;
  }

 private:
  static std::vector<char>& memory() {
    static thread_local std::vector<char> bytes;
    return bytes;
  }
  static int64_t padded(int64_t I) { return (I + kGroup - 1) / kGroup * kGroup; }
  static size_t round(size_t bytes) { return (bytes + 63) / 64 * 64; }
  void* take(size_t bytes) {
    void* p = at_;
    at_ += round(bytes);
    return p;
  }
  char* at_;
};

// A task's own memory, while it runs.
float* results(size_t n) {
  static thread_local std::vector<float> memory;
  if (memory.size() < n) memory.resize(n);
  return memory.data();
}

Phase normalized(const Kernels& k, const float* x, const float* scale, float eps, Tokens T,
                 int64_t E, const Panel& to) {
  constexpr int64_t some = 16;
  return {(T.n + some - 1) / some, [=](int64_t i) {
            float* row = results(E);
            for (int64_t t = i * some; t < std::min(T.n, (i + 1) * some); ++t) {
              k.normalize(x + T.at[t] * E, scale, eps, E, row);
              k.put(to, t, 0, row, E);
            }
          }};
}

// Fetch what will be written: it lies a row of a matrix apart, which no processor foresees, and
// arrives while a product is computed.
void soon(const void* p, int64_t bytes) {
  for (int64_t b = 0; b < bytes; b += 64)
    __builtin_prefetch(static_cast<const char*>(p) + b, 1, 2);
}

// Tasks f(row, rows, token, tokens) of `height` rows of weights and some of n tokens each; first all
// that have the same tokens, whose panel stays near. Tokens are dealt out evenly, by eights.
template <typename F>
Phase tiled(int64_t rows, int64_t height, int64_t n, F f) {
  const int64_t least = std::max<int64_t>(1, (n + kTokens - 1) / kTokens);
  const int64_t width = ((n + least - 1) / least + 7) / 8 * 8, down = (rows + height - 1) / height;
  return {width ? (n + width - 1) / width * down : 0, [=](int64_t i) {
            const int64_t row = i % down * height, token = i / down * width;
            f(row, std::min(height, rows - row), token, std::min(width, n - token));
          }};
}

// out = base + m * x, base being absent or [T, O].
Phase added(const Kernels& k, const Matrix& m, const Panel& x, Tokens T, const float* base,
            float* out) {
  return tiled(m.O, kRows, T.n, [=](int64_t row, int64_t rows, int64_t t, int64_t tokens) {
    float* y = results(kTokens * kRows);
    for (int64_t n = t; n < t + tokens; ++n) {
      const int64_t at = T.at[n] * m.O + row;
      soon(out + at, rows * sizeof(float));
      if (base && base != out) soon(base + at, rows * sizeof(float));
    }
    k.product(m, row, rows, x, t, tokens, y, rows);
    k.add(y, T.at + t, tokens, rows, base ? base + row : nullptr, out + row, m.O);
  });
}

struct Projection {
  Matrix m;
  const float* bias;  // or null
  bool rotated;
  void* out;  // [T, O]
  bool wide;  // out is float32, else bfloat16
};

// A head of queries, keys or values of some tokens, rotated where it is to be.
void head(const Kernels& k, const Projection& p, int64_t row, int64_t D, const Panel& x, int64_t t,
          int64_t tokens, const int32_t* at, const float* cos, const float* sin) {
  const int64_t half = D / 2, size = p.wide ? 4 : 2;
  float* y = results(kTokens * D);
  for (int64_t n = 0; n < tokens; ++n)
    soon(static_cast<char*>(p.out) + (at[n] * p.m.O + row) * size, D * size);
  k.product(p.m, row, D, x, t, tokens, y, D);
  for (int64_t n = 0; n < tokens; ++n) {
    float* line = y + n * D;
    if (p.bias)
      for (int64_t i = 0; i < D; ++i) line[i] += p.bias[row + i];
    if (p.rotated) {
      const float *c = cos + at[n] * half, *s = sin + at[n] * half;
      for (int64_t i = 0; i < half; ++i) {
        const float low = line[i], high = line[i + half];
        line[i] = low * c[i] - high * s[i];
        line[i + half] = high * c[i] + low * s[i];
      }
    }
    const int64_t to = at[n] * p.m.O + row;
    if (p.wide) {
      std::copy_n(line, D, static_cast<float*>(p.out) + to);
    } else {
      k.narrow(line, D, static_cast<uint16_t*>(p.out) + to);
    }
  }
}

ffi::Error before(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer used,
                  ffi::AnyBuffer norm, ffi::AnyBuffer cos, ffi::AnyBuffer sin, ffi::AnyBuffer q, ffi::AnyBuffer q_scales,
                  ffi::AnyBuffer q_bias, ffi::AnyBuffer k, ffi::AnyBuffer k_scales,
                  ffi::AnyBuffer k_bias, ffi::AnyBuffer v, ffi::AnyBuffer v_scales,
                  ffi::AnyBuffer v_bias, ffi::Result<ffi::AnyBuffer> q_out,
                  ffi::Result<ffi::AnyBuffer> k_out, ffi::Result<ffi::AnyBuffer> v_out, float eps,
                  int64_t isa) {
  const int64_t E = x.dimensions()[1], D = 2 * cos.dimensions()[1];
  auto projection = [&](const ffi::AnyBuffer& data, const ffi::AnyBuffer& scales,
                        const ffi::AnyBuffer& bias, const ffi::AnyBuffer& out, bool rotated) {
    const int64_t O = out.dimensions()[1] * D;
    return Projection{matrix(O, E, data, scales), bias.element_count() ? floats(bias) : nullptr,
                      rotated, out.untyped_data(), out.element_type() == ffi::F32};
  };
  const Projection all[] = {projection(q, q_scales, q_bias, *q_out, true),
                            projection(k, k_scales, k_bias, *k_out, true),
                            projection(v, v_scales, v_bias, *v_out, false)};
  auto rows = [](const Projection& p) { return Rows{p.out, size_t(p.m.O) * (p.wide ? 4 : 2)}; };
  const Tokens T = listed(used, {rows(all[0]), rows(all[1]), rows(all[2])});
  const Kernels kernels = kernels_of(isa);
  const Panel input = Scratch(Scratch::panel_bytes(T.n, E)).panel(all[0].m.kind, T.n, E);
  const int64_t H = all[0].m.O / D, K = all[1].m.O / D;
  auto task = [=, &all](int64_t row, int64_t, int64_t t, int64_t tokens) {
    const int64_t i = row / D, which = i < H ? 0 : i < H + K ? 1 : 2;
    const int64_t at = i < H ? i : i < H + K ? i - H : i - H - K;
    head(kernels, all[which], at * D, D, input, t, tokens, T.at + t, floats(cos), floats(sin));
  };
  Team::run(pool, {normalized(kernels, floats(x), floats(norm), eps, T, E, input),
                   tiled((H + 2 * K) * D, D, T.n, task)});
  return ffi::Error::Success();
}

ffi::Error after(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer used,
                 ffi::AnyBuffer attended, ffi::AnyBuffer norm, ffi::AnyBuffer o, ffi::AnyBuffer o_scales,
                 ffi::AnyBuffer gate, ffi::AnyBuffer gate_scales, ffi::AnyBuffer up,
                 ffi::AnyBuffer up_scales, ffi::AnyBuffer down, ffi::AnyBuffer down_scales,
                 ffi::Result<ffi::AnyBuffer> out, float eps, int64_t ffn, int64_t isa) {
  const int64_t E = x.dimensions()[1];
  const Tokens T = listed(used, {{out->untyped_data(), size_t(E) * sizeof(float)}});
  const int64_t Q = attended.dimensions()[1] * attended.dimensions()[2];
  const Kernels k = kernels_of(isa);
  const Matrix outward = matrix(E, Q, o, o_scales), back = matrix(E, ffn, down, down_scales);
  const Matrix gates = matrix(ffn, E, gate, gate_scales), ups = matrix(ffn, E, up, up_scales);
  Scratch scratch(Scratch::panel_bytes(T.n, Q) + Scratch::panel_bytes(T.n, E) +
                  Scratch::panel_bytes(T.n, ffn));
  const Panel heads = scratch.panel(outward.kind, T.n, Q);
  const Panel normed = scratch.panel(gates.kind, T.n, E);
  const Panel inner = scratch.panel(back.kind, T.n, ffn);
  float* hidden = static_cast<float*>(out->untyped_data());
  constexpr int64_t some = 16;
  const Phase gather = {(T.n + some - 1) / some, [=](int64_t i) {
                          for (int64_t t = i * some; t < std::min(T.n, (i + 1) * some); ++t) {
                            const int64_t at = T.at[t] * Q;
                            if (attended.element_type() == ffi::F32) {
                              k.put(heads, t, 0, floats(attended) + at, Q);
                            } else {
                              const void* data = attended.untyped_data();
                              k.put_narrow(heads, t, 0, static_cast<const uint16_t*>(data) + at, Q);
                            }
                          }
                        }};
  // A group of columns of the panel that `down` reads.
  auto gating = [=](int64_t row, int64_t rows, int64_t t, int64_t tokens) {
    float* g = results(2 * kTokens * kGroup);
    float* u = g + kTokens * kGroup;
    k.product(gates, row, rows, normed, t, tokens, g, rows);
    k.product(ups, row, rows, normed, t, tokens, u, rows);
    k.gated(g, u, tokens * rows);
    for (int64_t n = 0; n < tokens; ++n) k.put(inner, t + n, row, g + n * rows, rows);
  };
  Team::run(pool, {gather, added(k, outward, heads, T, floats(x), hidden),
                   normalized(k, hidden, floats(norm), eps, T, E, normed),
                   tiled(ffn, kGroup, T.n, gating),
                   added(k, back, inner, T, hidden, hidden)});
  return ffi::Error::Success();
}

ffi::Error logits(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer used, ffi::AnyBuffer norm,
                  ffi::AnyBuffer head, ffi::AnyBuffer scales, ffi::Result<ffi::AnyBuffer> out,
                  float eps, int64_t isa) {
  const int64_t E = x.dimensions()[1], V = out->dimensions()[1];
  const Tokens T = listed(used, {{out->untyped_data(), size_t(V) * sizeof(float)}});
  const Kernels k = kernels_of(isa);
  const Matrix m = matrix(V, E, head, scales);
  const Panel input = Scratch(Scratch::panel_bytes(T.n, E)).panel(m.kind, T.n, E);
  Team::run(pool, {normalized(k, floats(x), floats(norm), eps, T, E, input),
                   added(k, m, input, T, nullptr, static_cast<float*>(out->untyped_data()))});
  return ffi::Error::Success();
}

}  // namespace
}  // namespace sgjax

using Any = ffi::AnyBuffer;

XLA_FFI_DEFINE_HANDLER_SYMBOL(sgjax_before, sgjax::before,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Any>().Arg<Any>()                        // x, used
                                  .Arg<Any>().Arg<Any>().Arg<Any>()             // norm, cos, sin
                                  .Arg<Any>().Arg<Any>().Arg<Any>()             // q
                                  .Arg<Any>().Arg<Any>().Arg<Any>()             // k
                                  .Arg<Any>().Arg<Any>().Arg<Any>()             // v
                                  .Ret<Any>().Ret<Any>().Ret<Any>()
                                  .Attr<float>("eps")
                                  .Attr<int64_t>("isa"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(sgjax_after, sgjax::after,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Any>().Arg<Any>()             // x, used
                                  .Arg<Any>().Arg<Any>()             // attended, norm
                                  .Arg<Any>().Arg<Any>()             // o
                                  .Arg<Any>().Arg<Any>()             // gate
                                  .Arg<Any>().Arg<Any>()             // up
                                  .Arg<Any>().Arg<Any>()             // down
                                  .Ret<Any>()
                                  .Attr<float>("eps")
                                  .Attr<int64_t>("ffn")
                                  .Attr<int64_t>("isa"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(sgjax_logits, sgjax::logits,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Any>().Arg<Any>().Arg<Any>()  // x, used, norm
                                  .Arg<Any>().Arg<Any>()  // head
                                  .Ret<Any>()
                                  .Attr<float>("eps")
                                  .Attr<int64_t>("isa"));
