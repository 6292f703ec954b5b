// The custom call: cuts one layer's attention into tasks, runs them on XLA's thread pool, merges.
//
// A token's softmax may be split over tasks: a decode row over its context, any token over the
// prefixes it shares with others. Whoever finishes the last task of a token merges its partials, in
// an order that does not depend on timing.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "attend.h"
#include "team.h"

namespace sgjax {
namespace {

using Ints = ffi::Buffer<ffi::S32>;

constexpr int64_t kLeastSplit = 256;  // tokens; below it, merging costs more than it balances

struct Isa {
  void (*attend)(const Call&, const Task&, const Partials&);
  void (*merge)(const Call&, const Partials&, int64_t, int64_t, int64_t);
};

// 0 generic, 1 avx2, 2 avx512, 3 avx512_bf16.
Isa isa_of(int64_t level) {
#if defined(__x86_64__)
  if (level == 3) return {avx512_bf16::attend, avx512_bf16::merge};
  if (level == 2) return {avx512::attend, avx512::merge};
  if (level == 1) return {avx2::attend, avx2::merge};
#endif
  return {generic::attend, generic::merge};
}

// One call's work, shared by the threads that help; the last of them frees it.
struct Work {
  Call call;
  Isa isa;
  std::vector<Task> tasks;
  std::vector<int32_t> tokens, limits, slots;  // of all tasks, one after another
  std::vector<int32_t> first, parts;           // [T] first partial slot of a token, and how many
  Partials partials;
  std::unique_ptr<std::atomic<int32_t>[]> left;  // [T] tasks until the token can be merged

  void run(int64_t i) {
    const Task& task = tasks[i];
    isa.attend(call, task, partials);
    for (int32_t t = 0; t < task.num_tokens; ++t) {
      const int32_t token = task.tokens[t];
      if (task.slots[t] >= 0 && left[token].fetch_sub(1) == 1)
        isa.merge(call, partials, token, first[token], parts[token]);
    }
  }
};

// A task before its lists have a fixed place in memory.
struct Draft {
  size_t at;  // in Work::tokens
  int32_t num_tokens, row, start, end, head, num_heads;
};

struct Lists {
  const int32_t *kv_lens, *table, *block_row, *block_start, *block_len;
  const int32_t *shared_tokens, *shared_start, *shared_end, *own_start;
  int64_t T, B, D, G, BQ, I, TQ;
};

class Planner {
 public:
  Planner(Work& work, const Lists& lists, int64_t threads)
      : w_(work), l_(lists), left_(lists.T, 0), used_(lists.T, 0), threads_(threads) {}

  void plan() {
    w_.first.assign(l_.T, 0);
    w_.parts.assign(l_.T, 0);
    count();
    int32_t slots = 0;
    for (int64_t t = 0; t < l_.T; ++t) {
      w_.first[t] = slots;
      if (w_.parts[t] > 1) slots += w_.parts[t];
    }
    const int64_t H = w_.call.H;
    // Of the calling thread, which stays until all tasks are done.
    static thread_local std::vector<float> memory;
    if (memory.size() < size_t(slots * H * (w_.call.D + 2)))
      memory.resize(slots * H * (w_.call.D + 2));
    w_.partials = {memory.data(), memory.data() + slots * H, memory.data() + 2 * slots * H};
    const size_t width = H * w_.call.D * (w_.call.wide_q ? 4 : 2);
    for (int64_t t = 0; t < l_.T; ++t)  // padding
      if (!w_.parts[t]) std::memset(static_cast<char*>(w_.call.out) + t * width, 0, width);
    add_shared();
    add_blocks();
    add_decodes();
    for (const Draft& d : drafts_)
      w_.tasks.push_back({d.num_tokens, &w_.tokens[d.at], &w_.limits[d.at], &w_.slots[d.at], d.row,
                          d.start, d.end, d.head, d.num_heads});
    w_.left = std::make_unique<std::atomic<int32_t>[]>(l_.T);
    for (int64_t t = 0; t < l_.T; ++t) w_.left[t] = left_[t];
  }

 private:
  int32_t row_of(int32_t token) const {
    return token < l_.D ? token : l_.block_row[(token - l_.D) / l_.BQ];
  }
  int64_t splits_of(int64_t row) const {
    return (l_.kv_lens[row] - l_.own_start[row] + split_ - 1) / split_;
  }

  // The length of the pieces a run's range is cut into, so that few runs busy all threads, too.
  int64_t piece_of(int64_t i) const {
    const int64_t length = l_.shared_end[i] - l_.shared_start[i];
    const int64_t pieces = std::max<int64_t>(1, 4 * threads_ / (w_.call.K * runs_));
    return std::max(kLeastSplit, (length / pieces + 63) / 64 * 64);
  }

  // How many partials each token will have.
  void count() {
    int64_t tokens = 0;
    for (int64_t b = 0; b < l_.D; ++b)
      if (l_.kv_lens[b] > 0) tokens += l_.kv_lens[b] - l_.own_start[b];
    // Four tasks a thread balance well; a whole number of tiles each.
    split_ = std::max(kLeastSplit, (tokens / (4 * threads_) + 63) / 64 * 64);
    for (int64_t b = 0; b < l_.D; ++b)
      if (l_.kv_lens[b] > 0) w_.parts[b] = int32_t(splits_of(b));
    for (int64_t g = 0; g < l_.G; ++g)
      for (int64_t i = 0; i < l_.block_len[g]; ++i) w_.parts[l_.D + g * l_.BQ + i] = 1;
    for (int64_t i = 0; i < l_.I; ++i) runs_ += l_.shared_start[i] < l_.shared_end[i];
    for (int64_t i = 0; i < l_.I; ++i) {
      const int64_t length = l_.shared_end[i] - l_.shared_start[i];
      if (length <= 0) continue;
      const int64_t piece = piece_of(i);
      for (int64_t j = 0; j < l_.TQ; ++j) {
        const int32_t token = l_.shared_tokens[i * l_.TQ + j];
        if (token < l_.T) w_.parts[token] += int32_t((length + piece - 1) / piece);
      }
    }
  }

  void add_shared() {
    for (int64_t i = 0; i < l_.I; ++i) {
      if (l_.shared_start[i] >= l_.shared_end[i]) continue;
      const int64_t end = l_.shared_end[i], piece = piece_of(i);
      for (int64_t start = l_.shared_start[i]; start < end; start += piece) {
        const int32_t stop = int32_t(std::min(start + piece, end));
        const size_t at = w_.tokens.size();
        for (int64_t j = 0; j < l_.TQ; ++j) {
          const int32_t token = l_.shared_tokens[i * l_.TQ + j];
          if (token < l_.T) add_token(token, stop);
        }
        if (w_.tokens.size() > at) add_heads(at, row_of(w_.tokens[at]), int32_t(start), stop);
      }
    }
  }

  // Blocks in tiles of queries, the longest contexts first; short blocks of one row together.
  void add_blocks() {
    const size_t step = std::max(int64_t{1}, kRows * w_.call.K / w_.call.H);
    const int64_t most = std::max(int64_t{1}, int64_t(step) / l_.BQ);
    for (int64_t last = l_.G - 1, first; last >= 0; last = first - 1) {
      const int32_t row = l_.block_row[last];
      first = last;
      while (first > 0 && last - first + 1 < most && l_.block_row[first - 1] == row) --first;
      size_t at = w_.tokens.size();
      int32_t end = 0;
      for (int64_t g = first; g <= last; ++g)
        for (int32_t j = 0; j < l_.block_len[g]; ++j) {
          if (w_.tokens.size() - at == step) {
            add_heads(at, row, l_.own_start[row], end);
            at = w_.tokens.size();
          }
          end = l_.block_start[g] + j + 1;
          add_token(int32_t(l_.D + g * l_.BQ + j), end);
        }
      if (w_.tokens.size() > at) add_heads(at, row, l_.own_start[row], end);
    }
  }

  // Decode rows by ranges of their context, all heads at once: a token's K/V lie together.
  void add_decodes() {
    for (int64_t b = 0; b < l_.D; ++b) {
      const int32_t end = l_.kv_lens[b];
      if (end <= 0) continue;
      for (int64_t start = l_.own_start[b]; start < end; start += split_) {
        const size_t at = w_.tokens.size();
        add_token(int32_t(b), end);
        ++left_[b];
        drafts_.push_back({at, 1, int32_t(b), int32_t(start),
                           int32_t(std::min<int64_t>(start + split_, end)), 0,
                           int32_t(w_.call.K)});
      }
    }
  }

  void add_token(int32_t token, int32_t limit) {
    w_.tokens.push_back(token);
    w_.limits.push_back(limit);
    w_.slots.push_back(w_.parts[token] > 1 ? w_.first[token] + used_[token]++ : -1);
  }

  void add_heads(size_t at, int32_t row, int32_t start, int32_t end) {
    const int32_t n = int32_t(w_.tokens.size() - at);
    for (int32_t h = 0; h < w_.call.K; ++h) drafts_.push_back({at, n, row, start, end, h, 1});
    for (size_t i = at; i < w_.tokens.size(); ++i) left_[w_.tokens[i]] += int32_t(w_.call.K);
  }

  Work& w_;
  const Lists& l_;
  std::vector<Draft> drafts_;
  std::vector<int32_t> left_, used_;
  int64_t threads_, split_ = 0, runs_ = 0;
};

ffi::Error attention(ffi::ThreadPool pool, ffi::AnyBuffer q, ffi::AnyBuffer k_pool,
                     ffi::AnyBuffer v_pool, Ints kv_lens, Ints table, Ints block_row,
                     Ints block_start, Ints block_len, Ints shared_tokens, Ints shared_start,
                     Ints shared_end, Ints own_start, ffi::Result<ffi::AnyBuffer> out,
                     int64_t page_size, int64_t isa) {
  auto shape = q.dimensions();
  const int64_t T = shape[0], H = shape[1], D = shape[2];
  const int64_t B = table.dimensions()[0], G = block_row.dimensions()[0];
  const int64_t rows = B - G;
  if (k_pool.dimensions()[1] % D || H % (k_pool.dimensions()[1] / D))
    return ffi::Error::InvalidArgument("paged attention: pool and queries do not fit together");
  auto work = std::make_shared<Work>();
  work->isa = isa_of(isa);
  work->call = {H, k_pool.dimensions()[1] / D, D, page_size, table.dimensions()[1],
                q.untyped_data(), k_pool.untyped_data(), v_pool.untyped_data(),
                out->untyped_data(), q.element_type() == ffi::F32,
                k_pool.element_type() == ffi::F32, table.typed_data()};
  const int64_t threads = std::max<int64_t>(1, pool.num_threads());
  const Lists lists = {kv_lens.typed_data(), table.typed_data(), block_row.typed_data(),
                       block_start.typed_data(), block_len.typed_data(),
                       shared_tokens.typed_data(), shared_start.typed_data(),
                       shared_end.typed_data(), own_start.typed_data(), T, B, rows, G,
                       G ? (T - rows) / G : 1, shared_start.dimensions()[0],
                       shared_tokens.dimensions()[1]};
  Planner(*work, lists, threads).plan();
  Team::run(pool, {{int64_t(work->tasks.size()), [work](int64_t i) { work->run(i); }}});
  return ffi::Error::Success();
}

}  // namespace
}  // namespace sgjax

XLA_FFI_DEFINE_HANDLER_SYMBOL(sgjax_paged_attention, sgjax::attention,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<ffi::AnyBuffer>()
                                  .Arg<sgjax::Ints>()
                                  .Arg<sgjax::Ints>()
                                  .Arg<sgjax::Ints>()
                                  .Arg<sgjax::Ints>()
                                  .Arg<sgjax::Ints>()
                                  .Arg<sgjax::Ints>()
                                  .Arg<sgjax::Ints>()
                                  .Arg<sgjax::Ints>()
                                  .Arg<sgjax::Ints>()
                                  .Ret<ffi::AnyBuffer>()
                                  .Attr<int64_t>("page_size")
                                  .Attr<int64_t>("isa"));

// Return the best level of `native.ISAS` that this processor runs.
extern "C" int sgjax_best_isa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    const bool pairs = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
    return pairs ? 3 : 2;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 1;
#endif
  return 0;
}
