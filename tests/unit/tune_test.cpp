// The tuning cache survives what happens to files, and tuning never changes a result.
#include "convoy/tune.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <thread>
#include <vector>

#include "core/build.hpp"
#include "plan/measure_tiles.hpp"
#include "plan/segments.hpp"
#include "plan/select.hpp"
#include "plan/timing.hpp"
#include "plan/tune_chain.hpp"
#include "plan/tuning_cache.hpp"

namespace convoy {
namespace {

// A folder of its own for the cache, gone at the end; CONVOY_CACHE points there meanwhile.
class TuneTest : public testing::Test {
 protected:
  TuneTest() {
    std::string pattern = testing::TempDir() + "convoy-tune-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    setenv("CONVOY_CACHE", folder_.c_str(), 1);
    machine_.name = "a machine, \"quoted\"";
    machine_.cpu_model = "6-143-8";
    machine_.isa = "avx2";
    machine_.threads = 2;
  }
  ~TuneTest() override {
    unsetenv("CONVOY_CACHE");
    std::filesystem::remove_all(folder_);
  }
  std::string path() const { return folder_ + "/tuning.json"; }
  void write(std::string_view text) const { std::ofstream(path(), std::ios::binary) << text; }
  std::string read() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_),
                                                  std::filesystem::directory_iterator()));
  }

  std::string folder_;
  Machine machine_;
  const Stage stage_ = parse_stage("n2h8c16k16r3pad1+bias+relu");
};

TEST_F(TuneTest, ComesBackFromItsFile) {
  EXPECT_EQ(tuning_cache_path(), path());
  TuningCache cache;
  cache.set(machine_, stage_, {"direct", "6x16", 1.25e-3});
  save_tuning_cache(path(), cache);
  Stage other = stage_;
  other.n = 3;
  TuningCache more;
  more.set(machine_, other, {"direct", "4x16", 2e-3});
  save_tuning_cache(path(), more);

  std::string warning;
  const TuningCache back = load_tuning_cache(path(), warning);
  EXPECT_EQ(warning, "");
  EXPECT_EQ(back.size(), 2U);
  ASSERT_NE(back.find(machine_, stage_), nullptr);
  EXPECT_EQ(*back.find(machine_, stage_), (TunedTile{"direct", "6x16", 1.25e-3}));
  ASSERT_NE(back.find(machine_, other), nullptr);
  machine_.threads = 1;
  EXPECT_EQ(back.find(machine_, stage_), nullptr);
  machine_.threads = 2;
  machine_.isa = "avx512";
  EXPECT_EQ(back.find(machine_, stage_), nullptr);
  machine_.isa = "avx2";
  machine_.cpu_model = "6-207-2";  // another CPU of the same name
  EXPECT_EQ(back.find(machine_, stage_), nullptr);
  EXPECT_EQ(files(), 2U);  // the cache and its lock: no temporary is left
}

TEST_F(TuneTest, IgnoresWhatItCannotTrust) {
  TuningCache cache;
  cache.set(machine_, stage_, {"direct", "6x16", 1.25e-3});
  const std::string good = cache.to_json();
  std::string warning;
  EXPECT_EQ(TuningCache::parse(good, warning).size(), 1U);
  EXPECT_EQ(warning, "");

  const auto replaced = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::vector<std::string> bad = {
      "",
      "null",
      "[1]",
      "{}",
      good.substr(0, good.size() / 2),
      std::string(100000, '['),
      replaced("\"format\": 2", "\"format\": 1"),
      replaced(version(), "99.0.0"),
      replaced(build().text(), "0123456789ab, gcc 1.0"),
      replaced("6-143-8", ""),
      replaced("\"threads\": 2", "\"threads\": -2"),
      replaced("\"threads\": 2", "\"threads\": 1e99"),
      replaced("0.00125", "-1"),
      replaced("0.00125", "\"fast\""),
      replaced("n2h8", "n0h8"),
      replaced("\"direct\"", "7"),
      replaced("\"direct\"", "\"\""),
      replaced("6x16", "\\n"),
  };
  for (const std::string& text : bad) {
    warning.clear();
    EXPECT_EQ(TuningCache::parse(text, warning).size(), 0U) << text.substr(0, 200);
    EXPECT_NE(warning.find("ignored"), std::string::npos) << text.substr(0, 200);
    EXPECT_LT(warning.size(), 300U);
  }
}

// As Convoy wrote it before rows knew the CPU's model.
TEST_F(TuneTest, AFileOfTheFormatBeforeIsIgnoredAndReplaced) {
  write(R"({"format": 1, "version": ")" + std::string(version()) +
        R"(", "rows": [{"machine": "m", "isa": "avx2", "threads": 2, "stage": "n1h8c8k8r3",
            "kernel": "direct", "tile": "6x16", "seconds": 1e-3}]})");
  EXPECT_NE(Plan(stage_).explain().find("ignored: its format is not 2"), std::string::npos);
  TuningCache cache;
  cache.set(machine_, stage_, {"direct", "6x16", 1e-3});
  save_tuning_cache(path(), cache);
  std::string warning;
  EXPECT_EQ(load_tuning_cache(path(), warning).size(), 1U);
  EXPECT_EQ(warning, "");
}

TEST_F(TuneTest, ThisMachineHasAModel) {
  const Machine machine = cpu_machine();
#if defined(__x86_64__)
  EXPECT_TRUE(std::regex_match(machine.cpu_model, std::regex("[0-9]+-[0-9]+-[0-9]+")))
      << machine.cpu_model;
#endif
  EXPECT_FALSE(machine.cpu_model.empty());
  EXPECT_NE(build().compiler.find_first_of("0123456789"), std::string::npos) << build().compiler;
}

TEST_F(TuneTest, PlansAreMadeBesideABrokenFile) {
  write("{ \"format\": 2, ");
  const Plan plan(stage_);
  EXPECT_NE(plan.explain().find("ignored"), std::string::npos);
  // Tuning replaces the broken file.
  tune(stage_, {}, 0.01);
  std::string warning;
  EXPECT_EQ(load_tuning_cache(path(), warning).size(), 1U);
  EXPECT_EQ(warning, "");
  EXPECT_EQ(Plan(stage_).explain().find("ignored"), std::string::npos);
}

TEST_F(TuneTest, SaysWhatItCannotWrite) {
  TuningCache cache;
  cache.set(machine_, stage_, {"direct", "6x16", 1e-3});
  write("not a folder");
  try {
    save_tuning_cache(path() + "/deeper/tuning.json", cache);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("CONVOY_CACHE"), std::string::npos) << error.what();
  }
  EXPECT_THROW(save_tuning_cache("", cache), Error);
  EXPECT_EQ(read(), "not a folder");
}

TEST_F(TuneTest, APipeOrADeviceBlocksNoPlan) {
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_NE(Plan(stage_).explain().find("ignored"), std::string::npos);
  TuningCache cache;
  cache.set(machine_, stage_, {"direct", "6x16", 1e-3});
  EXPECT_THROW(save_tuning_cache(path(), cache), Error);
  std::filesystem::remove(path());
  std::filesystem::create_symlink("/dev/zero", path());
  EXPECT_NE(Plan(stage_).explain().find("is a device"), std::string::npos);
}

TEST_F(TuneTest, WritesNothingButTheCache) {
  TuningCache cache;
  cache.set(machine_, stage_, {"direct", "6x16", 1e-3});
  std::ofstream(folder_ + "/victim") << "precious";
  // Where a temporary file might be foreseen.
  std::filesystem::create_symlink("victim", path() + "." + std::to_string(getpid()) + ".tmp");
  write("{}");
  ASSERT_EQ(chmod(path().c_str(), 0600), 0);
  save_tuning_cache(path(), cache);
  std::string victim;
  std::ifstream(folder_ + "/victim") >> victim;
  EXPECT_EQ(victim, "precious");
  struct stat status {};
  ASSERT_EQ(stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  EXPECT_EQ(files(), 4U);
}

TEST_F(TuneTest, WaitsForNoLockForEver) {
  TuningCache cache;
  cache.set(machine_, stage_, {"direct", "6x16", 1e-3});
  const auto refusal = [&] {
    try {
      save_tuning_cache(path(), cache, 0.1);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string lock = path() + ".lock";
  const int held = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  EXPECT_NE(refusal().find("has held " + lock), std::string::npos) << refusal();
  EXPECT_EQ(files(), 1U);
  close(held);
  EXPECT_EQ(refusal(), "");
  std::filesystem::remove(lock);
  std::filesystem::create_symlink("elsewhere", lock);
  EXPECT_NE(refusal().find("is not a regular file. Remove it"), std::string::npos) << refusal();
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/elsewhere"));
  std::filesystem::remove(lock);
  ASSERT_EQ(mkfifo(lock.c_str(), 0600), 0);
  EXPECT_NE(refusal().find("is not a regular file. Remove it"), std::string::npos) << refusal();
}

TEST_F(TuneTest, WritersAtOnceLoseNothing) {
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([this, i] {
      for (int j = 0; j < 5; ++j) {
        Stage stage = stage_;
        stage.n = 1 + i * 5 + j;
        TuningCache cache;
        cache.set(machine_, stage, {"direct", "6x16", 1e-3});
        save_tuning_cache(path(), cache);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  std::string warning;
  EXPECT_EQ(load_tuning_cache(path(), warning).size(), 20U);
  EXPECT_EQ(warning, "");
}

TEST_F(TuneTest, ChoosesATileAndKeepsTheBits) {
  for (const char* text : {"n2h14c32k32r3pad1+bias+relu+max2", "n1h12c24k40r1+bias+relu",
                           "n2h14c32k32r3pad1+bias+relu+max2+strict"}) {
    const Stage stage = parse_stage(text);
    RandomOperands random(stage);
    const auto run = [&](const Plan& plan) {
      plan.run(random.operands(stage)).or_throw();
      return random.y.clone();
    };
    const Plan before(stage, random.weights);
    const Tensor first = run(before);
    const TuneResult result = tune(stage, {}, 0.02);
    ASSERT_FALSE(result.rows.empty());
    EXPECT_TRUE(result.rows.front().chosen);
    EXPECT_EQ(result.arithmetic, before.arithmetic());
    EXPECT_EQ(result.saved_to, path());
    for (std::size_t i = 1; i < result.rows.size(); ++i)
      EXPECT_LE(result.rows[i - 1].median, result.rows[i].median);

    const Plan after(stage, random.weights);
    EXPECT_EQ(after.kernel(), result.rows.front().kernel);
    EXPECT_EQ(after.tile(), result.rows.front().tile);
    const Tensor second = run(after);
    EXPECT_EQ(std::memcmp(first.data<float>(), second.data<float>(), first.bytes()), 0) << text;
    // Every tile of the arithmetic gives those bits.
    for (const TuneRow& row : result.rows) {
      PlanOptions options;
      options.kernel = row.kernel;
      options.tile = row.tile;
      const Tensor third = run(Plan(stage, random.weights, options));
      EXPECT_EQ(std::memcmp(first.data<float>(), third.data<float>(), first.bytes()), 0)
          << text << " " << row.kernel << " " << row.tile;
    }
  }
}

// A tile that writes other bits than the plan's choice is not stored, however fast, and is told of.
TEST_F(TuneTest, RefusesOtherBits) {
  const auto candidate = [](const char* tile, double seconds, std::vector<std::byte> bytes) {
    TimedCandidate one("fake", tile, seconds, [seconds](double) {
      return Timing{seconds, seconds, 1};
    });
    one.outputs = [bytes = std::move(bytes)] { return bytes; };
    return one;
  };
  const std::byte a{1}, b{2};
  std::vector<TimedCandidate> candidates{
      candidate("choice", 3, {a, a, b}), candidate("liar", 1, {a, b, b}),
      candidate("short", 0.5, {a, a}), candidate("same", 2, {a, a, b})};
  refuse_other_bits(candidates, "fake", "choice");
  const std::vector<TuneRow> rows = time_in_turns(std::move(candidates), 1);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0].tile, "same");
  EXPECT_TRUE(rows[0].chosen);
  EXPECT_EQ(rows[1].tile, "choice");
  EXPECT_EQ(rows[1].refused, "");
  EXPECT_EQ(rows[2].tile, "short");
  EXPECT_EQ(rows[3].tile, "liar");
  EXPECT_FALSE(rows[3].chosen);
  EXPECT_NE(rows[3].refused.find("1 of 3 bytes"), std::string::npos) << rows[3].refused;
  EXPECT_NE(rows[3].refused.find("fake choice"), std::string::npos) << rows[3].refused;
  EXPECT_NE(save_fastest(cpu_machine(), stage_, rows), "");
  EXPECT_EQ(save_fastest(cpu_machine(), stage_, {rows[3]}), "");
}

// Its tiles are compared with one thread too, though two may be used.
TEST_F(TuneTest, MeasuresWhatOneThreadRuns) {
  PlanOptions options;
  options.threads = 2;
  const TuneResult result = tune(parse_stage("n1h2c4k4r1"), options, 0.005, false);
  ASSERT_FALSE(result.rows.empty());
  EXPECT_LT(result.rows.front().predicted, 3e-6) << "without the start of another thread";
}

TEST_F(TuneTest, SavesNothingUnlessAsked) {
  const TuneResult result = tune(stage_, {}, 0.01, false);
  EXPECT_EQ(result.saved_to, "");
  EXPECT_EQ(files(), 0U);
  EXPECT_THROW(tune(stage_, {}, 0.0), Error);
}

// A chain's row has its text; constants, which a kernel folds or does not have, tell none apart.
TEST_F(TuneTest, KeepsChains) {
  const OwnedChain chain = parse_chain(
      "constants > u8:n3h10c1k8r3+bias+if(1)+t2+hold+max2 > n3h4c8k9r3pad1+if(0.5)+t2 > "
      "n3h1c144k5r1+bias > mean");
  const OwnedChain pair = parse_chain("f16:n2h8c8k16r3+max2 > f16:n2h3c16k8r1", true);
  TuningCache cache;
  cache.set(machine_, chain, {"spike_chain", "32 images", 1e-3});
  cache.set(machine_, pair, {stages_by_themselves, "by themselves", 2e-3});
  cache.set(machine_, stage_, {"direct", "6x16", 3e-3});
  save_tuning_cache(path(), cache);
  std::string warning;
  const TuningCache back = load_tuning_cache(path(), warning);
  EXPECT_EQ(warning, "");
  EXPECT_EQ(back.size(), 3U);
  ASSERT_NE(back.find(machine_, chain), nullptr);
  EXPECT_EQ(back.find(machine_, chain)->kernel, "spike_chain");
  OwnedChain in_a_network = pair;
  in_a_network.constants = true;
  ASSERT_NE(back.find(machine_, in_a_network), nullptr);
  EXPECT_EQ(back.find(machine_, in_a_network)->kernel, stages_by_themselves);
  OwnedChain other = chain;
  other.stages.back().k = 6;
  EXPECT_EQ(back.find(machine_, other), nullptr);
}

TEST_F(TuneTest, MeasuresBothWaysOfRunningAChain) {
  for (const char* text :
       {"constants > u8:n3h10c1k8r3+bias+if(1)+t2+hold+max2 > n3h4c8k9r3pad1+if(0.5)+t2 > "
        "n3h1c144k5r1+bias > mean",
        "constants > spikes t3 > n2h6c7k9r3pad1+lif(2,0.5)+t3",
        "constants > spikes t3 > n2h1c40k8r1 > mean"}) {
    const OwnedChain chain = parse_chain(text);
    const ChainTuneResult result = tune_chain(chain, {}, 0.01, true);
    EXPECT_EQ(result.chain, chain);
    EXPECT_EQ(result.saved_to, path());
    ASSERT_EQ(result.rows.size(), 2U);
    EXPECT_TRUE(result.rows.front().chosen);
    // Stages by themselves have another arithmetic: they are timed, not chosen, however fast.
    EXPECT_EQ(result.rows[0].kernel, "spike_chain");
    EXPECT_EQ(result.rows[0].refused, "");
    EXPECT_EQ(result.rows[1].kernel, stages_by_themselves);
    EXPECT_FALSE(result.rows[1].chosen);
    EXPECT_NE(result.rows[1].refused.find(result.arithmetic), std::string::npos)
        << result.rows[1].refused;
    for (const TuneRow& row : result.rows) {
      EXPECT_GT(row.predicted, 0);
      EXPECT_GT(row.runs, 10);
    }
    // The choice is the one that is measured; whether to fuse is not, for the bits would change.
    std::string warning;
    const Selection selection = select(chain, cpu_machine(), {}, user_tuning_cache(warning).get());
    EXPECT_EQ(selection.kernel().name(), "spike_chain");
    EXPECT_TRUE(selection.tuned.has_value());
    EXPECT_EQ(cut(chain, cpu_machine(), {}).size(), 1U);
  }
  EXPECT_THROW(tune_chain(parse_chain("n2h8c4k4r3 > n2h6c4k4r1"), {}, 0.01, false), Error);
  OwnedChain row_of_65;
  row_of_65.constants = row_of_65.binary = true;
  row_of_65.stages.assign(65, parse_stage("n1h1c8k8r1+if(1)"));
  EXPECT_THROW(tune_chain(row_of_65, {}, 0.01, false), Error);
}

}  // namespace
}  // namespace convoy
