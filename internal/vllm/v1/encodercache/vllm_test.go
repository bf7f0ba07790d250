package encodercache

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The scenarios of vLLM's tests/v1/core/test_encoder_cache_manager.py, with the numbers
// there; vLLM's free slots are the size without what is taken, its freeable slots the
// size without what is referenced. Those that cache_test.go has with other numbers are
// not repeated; test_schedule_request_multi_images_respect_compute_limit, whose budget is
// the scheduler's, is in sched/encoder_test.go (TestTheSecondItemOfARequestWaits).
// The encoder cache of encoder-decoder models is not there.

// test_basic_allocate_and_reuse
func TestAReferenceEndsOnce(t *testing.T) {
	c, r := New(10), request("imgA", 4)
	allocate(t, c, r, 0)
	require.True(t, c.Use(r, 0))
	c.freeInput(r, 0)
	c.freeInput(r, 0)
	requireUsage(t, c, 4, 0)
}

// test_get_cached_input_ids
func TestARequestRefersToTheInputsItHasAllocated(t *testing.T) {
	c, r := New(10), request("m", 2, 4, 3)
	allocate(t, c, r, 0)
	allocate(t, c, r, 2)
	require.Equal(t, []int{0, 2}, r.held)
	require.False(t, c.Use(r, 1))
	requireUsage(t, c, 5, 5)
}

// test_has_cache_restores_from_freeable
func TestAnUnreferencedOutputIsReferredToAgain(t *testing.T) {
	c, r := New(10), request("imgZ", 4)
	allocate(t, c, r, 0)
	c.freeInput(r, 0)
	require.True(t, c.Use(r, 0))
	requireUsage(t, c, 4, 4)
	require.False(t, c.Reserve(request("b", 7), 0, 0), "it is not evicted")
}

// test_reallocated_hash_is_not_reported_as_freed
func TestOnlyWhatIsGoneIsToldAsEvicted(t *testing.T) {
	c, a, b, d := New(8), request("a", 4), request("b", 4), request("c", 4)
	allocate(t, c, a, 0)
	allocate(t, c, b, 0)
	c.Free(a)
	c.Free(b)
	allocate(t, c, d, 0)
	allocate(t, c, a, 0)
	require.Equal(t, []string{"b0"}, c.TakeEvicted(nil))
}

// test_encoder_cache_with_is_embed_mask
func TestAMaskedItemTakesOnlyItsEmbeddings(t *testing.T) {
	mask := make([]byte, 100)
	for at := 5; at < 80; at += 10 {
		mask[at] = 1
	}
	in := Input{Hash: "img1", Length: 100}
	in.Mask(mask)
	require.Equal(t, 8, in.NumEmbeds)
	c, r := New(100), NewRequest([]Input{in})
	allocate(t, c, r, 0)
	requireUsage(t, c, 8, 8)
}

// test_encoder_cache_mask_based_retrieval
func TestEmbeddingsOfATokenRangeAreThoseOfTheMask(t *testing.T) {
	in := Input{Hash: "img1", Length: 10}
	in.Mask([]byte{0, 0, 1, 1, 0, 1, 1, 1, 0, 0})
	require.Equal(t, []int{5, 0, 5, 0, 2}, []int{in.NumEmbeds, in.Embeds(0, 2), in.Embeds(2, 8), in.Embeds(0, 0), in.Embeds(0, 5)})
}

// test_reset_clears_all_state
func TestResetAlsoForgetsWhatWasEvicted(t *testing.T) {
	c, first, second, third := New(20), request("img", 5, 3), request("img3", 4), request("img4", 10)
	allocate(t, c, first, 0)
	allocate(t, c, first, 1)
	allocate(t, c, second, 0)
	c.Free(first)
	c.Free(second)
	allocate(t, c, third, 0)
	requireUsage(t, c, 17, 10)
	c.Reset()
	requireUsage(t, c, 0, 0)
	require.Empty(t, c.TakeEvicted(nil))
	require.Empty(t, third.held)
}

// test_reset_allows_fresh_allocations
func TestAfterAResetThereIsRoom(t *testing.T) {
	c, first, second := New(10), request("img1", 10), request("img2", 8)
	allocate(t, c, first, 0)
	require.False(t, c.Reserve(second, 0, 0))
	c.Reset()
	allocate(t, c, second, 0)
	requireUsage(t, c, 8, 8)
	require.False(t, c.Use(first, 0))
}

// test_free_request_with_duplicate_mm_hashes
func TestARequestCanHaveAnItemTwice(t *testing.T) {
	c, r := New(20), NewRequest([]Input{{Hash: "imgA", Length: 4, NumEmbeds: 4}, {Hash: "imgA", Offset: 4, Length: 4, NumEmbeds: 4}})
	allocate(t, c, r, 0)
	require.True(t, c.Use(r, 1))
	requireUsage(t, c, 4, 4)
	c.Free(r)
	require.Empty(t, r.held)
	requireUsage(t, c, 4, 0)
}
