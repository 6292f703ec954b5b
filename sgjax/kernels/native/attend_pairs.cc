// Attention for processors that multiply pairs of bfloat16, where queries and pool are bfloat16.
//
// Scores and weighted sums are products of pairs, added in float32; the softmax is float32, its
// weights are rounded to bfloat16 for the second product. Few rows (decode: the Q query heads of a
// kv head) and many (query blocks, shared prefixes) are laid out differently: few.h, many.h.

#include <vector>

#include "attend.h"
#include "few.h"
#include "many.h"
#include "pairs.h"
#include "scratch.h"

namespace sgjax {
namespace SGJAX_ISA {
namespace {

// Attend to all tiles of a task. Parts are of Few or Many rows.
template <typename... Parts>
void run(const Call& call, const Task& task, const Partials& partials, Parts... parts) {
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
      (parts.tile(h, t), ...);
    }
    std::copy_n(at + kTile, kTile, at);
  }
  (parts.finish(call, task, partials), ...);
}

}  // namespace

void attend(const Call& call, const Task& task, const Partials& partials) {
  if (call.wide_q || call.wide_pool || call.D % (2 * W))
    return avx512::attend(call, task, partials);
  static thread_local Scratch many, few;
  static thread_local std::vector<Row> rows;
  rows.clear();
  for (int32_t token = 0; token < task.num_tokens; ++token)
    for (int32_t q = 0; q < call.H / call.K; ++q) rows.push_back({token, q});
  // What a few rows take of their own is less than a vector of lanes would.
  const int64_t n = rows.size(), rest = n % W <= kMostFew ? n % W : 0;
  const Rows first = {rows.data(), n - rest}, last = {rows.data() + n - rest, rest};
  if (first.n == 0) {
    run(call, task, partials, Few(call, task, last, few));
  } else if (rest == 0) {
    run(call, task, partials, Many(call, task, first, many));
  } else {
    run(call, task, partials, Many(call, task, first, many), Few(call, task, last, few));
  }
}

void merge(const Call& call, const Partials& partials, int64_t token, int64_t first,
           int64_t count) {
  avx512::merge(call, partials, token, first, count);
}

}  // namespace SGJAX_ISA
}  // namespace sgjax
