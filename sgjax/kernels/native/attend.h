// What the driver (driver.cc) and the kernels (attend.cc, compiled once for each instruction set)
// share. Shape letters as in kernels/batch.py; here Q is the query heads of one kv head, H / K.
#pragma once

#include <cstdint>

namespace sgjax {

// One call: the arrays of one layer.
struct Call {
  int64_t H, K, D, S, P;  // query heads, kv heads, head dim, page size, pages a row of `table`
  const void* q;          // [T, H, D]
  const void* k_pool;     // [N * S, K * D]
  const void* v_pool;
  void* out;              // [T, H, D]
  bool wide_q;            // q and out are float32, else bfloat16
  bool wide_pool;         // so is the pool
  const int32_t* table;   // [B, P]
};

// Queries that see one range of one sequence's tokens.
struct Task {
  int32_t num_tokens;      // queries
  const int32_t* tokens;   // [num_tokens] index of each into T
  const int32_t* limits;   // [num_tokens] it sees positions below this; they never fall
  const int32_t* slots;    // [num_tokens] where its partial result goes; -1: straight to `out`
  int32_t row;             // whose pages
  int32_t start, end;      // of the range, in positions
  int32_t head, num_heads; // kv heads
};

// Partial softmax of one token: for each query head the top score, the sum of exp(score - top),
// and that sum weighted by the values. Partials of disjoint ranges merge exactly.
struct Partials {
  float* top;    // [slots, H]
  float* total;  // [slots, H]
  float* acc;    // [slots, H, D]
};

// Most rows (queries times Q) a task of one kv head should have; a bigger Q makes it bigger.
constexpr int64_t kRows = 96;

#define SGJAX_DECLARE(isa)                                                                \
  namespace isa {                                                                         \
  void attend(const Call& call, const Task& task, const Partials& partials);              \
  void merge(const Call& call, const Partials& partials, int64_t token, int64_t first,    \
             int64_t count);                                                              \
  }

SGJAX_DECLARE(generic)
SGJAX_DECLARE(avx2)
SGJAX_DECLARE(avx512)
SGJAX_DECLARE(avx512_bf16)  // attend_pairs.cc

}  // namespace sgjax
