// Work in phases for the calling thread and whoever of XLA's thread pool comes to help.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace sgjax {

// Tasks 0 .. count - 1, in any order, on any thread.
struct Phase {
  int64_t count;
  std::function<void(int64_t)> task;
};

// Phases run one after another; each begins when all tasks of the one before have ended. Nobody
// waits for a helper that has not come yet: those who are there do its share.
class Team {
 public:
  static void run(ffi::ThreadPool pool, std::vector<Phase> phases) {
    auto team = std::make_shared<Team>(std::move(phases));
    const int64_t helpers = team->widest() < 2 ? 0 : pool.num_threads() - 1;
    for (int64_t i = 0; i < helpers; ++i) pool.Schedule([team] { team->help(false); });
    team->help(true);
  }

  explicit Team(std::vector<Phase> phases)
      : phases_(std::move(phases)), counters_(new Counters[phases_.size()]) {}

 private:
  struct alignas(64) Counters {
    std::atomic<int64_t> next{0}, done{0};
  };

  int64_t widest() const {
    int64_t most = 0;
    for (const Phase& phase : phases_) most = std::max(most, phase.count);
    return most;
  }

  // Take tasks; `to_the_end`: stay until the last one has ended.
  void help(bool to_the_end) {
    for (size_t p = 0; p < phases_.size(); ++p) {
      const Phase& phase = phases_[p];
      Counters& counters = counters_[p];
      for (int64_t i; (i = counters.next.fetch_add(1)) < phase.count;) {
        phase.task(i);
        counters.done.fetch_add(1);
      }
      if (p + 1 == phases_.size() && !to_the_end) return;
      for (int spins = 0; counters.done.load() < phase.count; ++spins)
        if (spins > kSpins) std::this_thread::yield();
    }
  }

  // The others' tasks end in microseconds, if they run at all. No pause instructions meanwhile: on a
  // virtual machine with two cores decoding one sequence took 4 % longer with them.
  static constexpr int kSpins = 4000;
  std::vector<Phase> phases_;
  std::unique_ptr<Counters[]> counters_;
};

}  // namespace sgjax
