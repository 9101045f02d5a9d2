// SPDX-License-Identifier: GPL-2.0-only
#include "host-store/store/page_set.h"

#include <gtest/gtest.h>

#include "compress/sample_pages.h"
#include "host-store/store/store_test_util.h"

namespace tmem {
namespace {

class PageSetTest : public testing::TestWithParam<Lifetime> {
 protected:
  void SetUp() override {
    set_ = MakeSet(1);
    empty_bytes_ = budget_.used_bytes();
    // Persistent pages are stored on promises.
    promises_ = budget_.MakePromises(1000);
  }
  void TearDown() override {
    const Result<void> checked = set_->Check();
    EXPECT_TRUE(checked.ok()) << checked.error().Describe();
  }
  std::unique_ptr<PageSet> MakeSet(uint8_t key) {
    auto set = PageSet::Create({.name = "test",
                                .lifetime = GetParam(),
                                .hash_key = {std::byte{key}},
                                .budget = &budget_,
                                .faults = &faults_});
    EXPECT_TRUE(set.ok());
    return std::move(set).value();
  }
  RecordNumber Store(const PageBytes& page) {
    const Holder holder = set_->Store(PageView(page), scratch_);
    EXPECT_EQ(holder.kind, HolderKind::kStored);
    return static_cast<RecordNumber>(holder.value);
  }
  void ExpectPage(RecordNumber number, const PageBytes& page) {
    const auto fetched = set_->Fetch(number, scratch_);
    ASSERT_TRUE(fetched.has_value());
    EXPECT_EQ(std::memcmp(fetched->data(), page.data(), kPageBytes), 0);
  }

  Budget budget_{{.limit_bytes = 32 * kMiB,
                  .pool_min_bytes = 16 * kMiB,
                  .worst_case_bytes = PageSet::kWorstPageBytes}};
  FaultPlan faults_;
  PageScratch scratch_;
  std::unique_ptr<PageSet> set_;
  uint64_t empty_bytes_ = 0;
  uint64_t promises_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Lifetimes, PageSetTest,
                         testing::Values(Lifetime::kEphemeral, Lifetime::kPersistent));

TEST_P(PageSetTest, EveryKindOfPageComesBack) {
  const PageBytes text = MakePage(1);
  const PageBytes raw = MakePage(2, Fill::kRandom);
  const RecordNumber a = Store(text);
  const RecordNumber b = Store(raw);
  ExpectPage(a, text);
  ExpectPage(b, raw);
  EXPECT_LT(set_->StoredBytes(a), kPageBytes / 2);
  EXPECT_EQ(set_->StoredBytes(b), kPageBytes);
  const PageBytes zero{};
  EXPECT_EQ(set_->Store(PageView(zero), scratch_), (Holder{HolderKind::kFilled, 0}));
  EXPECT_EQ(set_->figures().compressed, 1u);
  EXPECT_EQ(set_->figures().raw, 1u);
  set_->Drop(a);
  set_->Drop(b);
}

TEST_P(PageSetTest, EqualPagesAreSharedUntilTheLastGoes) {
  const PageBytes page = MakePage(1);
  const RecordNumber number = Store(page);
  EXPECT_EQ(Store(page), number);
  EXPECT_EQ(Store(page), number);
  EXPECT_EQ(set_->figures().saved_bytes, 2 * set_->StoredBytes(number));
  set_->Drop(number);
  set_->Drop(number);
  ExpectPage(number, page);
  set_->Drop(number);
  EXPECT_EQ(set_->figures().compressed, 0u);
}

TEST_P(PageSetTest, EqualHashesAloneShareNothing) {
  // An altered page whose record still has the hash of the old bytes: found, compared, not shared.
  const PageBytes page = MakePage(1, Fill::kRandom);
  const RecordNumber number = Store(page);
  const auto& record = RecordAt<PageRecord>(set_->records_file(), number);
  std::byte* bytes =
      SlabHeap::SlotBegin(set_->records_file(), set_->slabs_file(), {record.slab, record.slot});
  bytes[100] ^= std::byte{1};
  const RecordNumber other = Store(page);
  EXPECT_NE(other, number);
  ExpectPage(other, page);
  EXPECT_FALSE(set_->Fetch(number, scratch_).has_value())
      << "and the altered one is not handed out";
  set_->Drop(number);
  set_->Drop(other);
}

TEST_P(PageSetTest, APinKeepsTheBytesAfterTheLastShare) {
  const PageBytes page = MakePage(1);
  const RecordNumber number = Store(page);
  set_->Pin(number);
  set_->Drop(number);
  ExpectPage(number, page);
  EXPECT_NE(Store(page), number) << "a page that is going is not shared again";
  set_->Unpin(number);
  EXPECT_EQ(set_->figures().compressed, 1u);
}

TEST_P(PageSetTest, AllMemoryGoesBack) {
  std::vector<RecordNumber> numbers;
  for (uint64_t i = 0; i < 900; ++i) {
    numbers.push_back(Store(MakePage(i, i % 3 == 0 ? Fill::kRandom : Fill::kCompressible)));
  }
  for (const RecordNumber number : numbers) set_->Drop(number);
  set_->Trim();
  EXPECT_EQ(budget_.used_bytes(), empty_bytes_);
}

TEST_P(PageSetTest, ACodecThatRefusesOnlyCostsRoom) {
  faults_.FailNth(FaultPlan::Point::kCompress, 1);
  const PageBytes page = MakePage(1);
  const RecordNumber number = Store(page);
  EXPECT_EQ(set_->StoredBytes(number), kPageBytes);
  ExpectPage(number, page);
  set_->Drop(number);
}

TEST_P(PageSetTest, EverySampleKindSurvives) {
  for (const PageKind kind : kAllPageKinds) {
    const auto page = MakeSamplePage(kind, 77);
    const Holder holder = set_->Store(PageView(page), scratch_);
    if (holder.kind == HolderKind::kFilled) continue;
    const auto number = static_cast<RecordNumber>(holder.value);
    const auto fetched = set_->Fetch(number, scratch_);
    ASSERT_TRUE(fetched.has_value());
    EXPECT_EQ(std::memcmp(fetched->data(), page.data(), kPageBytes), 0);
    set_->Drop(number);
  }
}

// With no room but what was promised, every page still finds a place: in a slot of a whole page.
TEST(PageSetPromises, PagesOfEveryLengthFitInWhatWasPromised) {
  Budget budget({.limit_bytes = 8 * kMiB,
                 .pool_min_bytes = 1 * kMiB,
                 .worst_case_bytes = PageSet::kWorstPageBytes});
  ASSERT_TRUE(budget.AddSlack(PageSet::kSlackBytes));
  auto set = PageSet::Create({.name = "test",
                              .lifetime = Lifetime::kPersistent,
                              .hash_key = {std::byte{1}},
                              .budget = &budget,
                              .faults = nullptr});
  ASSERT_TRUE(set.ok());
  PageScratch scratch;
  const uint64_t promises = budget.MakePromises(UINT64_MAX);
  ASSERT_GT(promises, 200u);
  std::vector<RecordNumber> numbers;
  for (uint64_t i = 0; i < promises; ++i) {
    // From nearly nothing to incompressible, so that each class wants a slab of its own.
    PageBytes page{};
    const PageBytes random = MakePage(i, Fill::kRandom);
    std::memcpy(page.data(), random.data(), 16 + i * 97 % (kPageBytes - 16));
    const Holder holder = (*set)->Store(PageView(page), scratch);
    ASSERT_EQ(holder.kind, HolderKind::kStored) << "page " << i << " of " << promises;
    numbers.push_back(static_cast<RecordNumber>(holder.value));
    budget.ReleasePromises(1);
    ASSERT_LE(budget.persistent_bytes(), 1 * kMiB);
  }
  EXPECT_EQ(budget.overruns(), 0u);
  for (const RecordNumber number : numbers) (*set)->Drop(number);
}

}  // namespace
}  // namespace tmem
