package v0

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that slots follow the table, with padding in front of a window's start,
// and for a profile run.
func TestSlotsFollowTheTable(t *testing.T) {
	table := []int32{7, 2}
	require.Equal(t, []int64{28, 29, 30, 31, 8}, AppendSlots(nil, table, 4, 0, 5, 0))
	require.Equal(t, []int64{31, 8}, AppendSlots(nil, table, 4, 3, 5, 0))
	require.Equal(t, []int64{PadSlotID, PadSlotID, PadSlotID, 31, 8}, AppendSlots(nil, table, 4, 0, 5, 3))
	require.Equal(t, []int64{PadSlotID, 31, 8}, AppendSlots(nil, table, 4, 2, 5, 3))
	require.Equal(t, []int64{PadSlotID, PadSlotID}, AppendSlots(nil, nil, 4, 1, 2, 0))
	require.Equal(t, 3, SlotStart(true, 5, 2))
	require.Equal(t, 0, SlotStart(true, 2, 5))
	require.Equal(t, 0, SlotStart(false, 5, 2))
	require.Equal(t, 0, SlotStart(true, 5, 0))
}

// Ensure that admission and swapping in leave the watermark free, and that the
// watermark makes a prompt impossible, but not a swap.
func TestAdmissionLeavesTheWatermarkFree(t *testing.T) {
	m := manager(t, Config{BlockSize: 1, NumGPUBlocks: 10, NumCPUBlocks: 10, Watermark: 0.29})
	require.Equal(t, 2, m.View.Watermark())
	require.Equal(t, OK, m.CanAllocate(8, 0))
	require.Equal(t, Never, m.CanAllocate(9, 0))
	require.Equal(t, Never, m.CanAllocate(8, 1))
	require.NoError(t, m.Allocate(&Seq{Len: 1}))
	require.Equal(t, Later, m.CanAllocate(8, 0))

	s := &Seq{Len: 8}
	require.NoError(t, m.Allocate(s))
	require.True(t, m.CanAppend(0, &Seq{}, s))
	s.Len = 10
	require.False(t, m.CanAppend(0, s), "two more tokens, one free block")
	s.Len = 8
	require.True(t, m.CanSwapOut(s))
	_, err := m.SwapOut(nil, s)
	require.NoError(t, err)
	require.Equal(t, Later, m.CanSwapIn(0, s), "8 and the watermark are not free")
	s.Len = 10
	require.Equal(t, Later, m.CanSwapIn(0, s), "10 are not more than there are: vLLM waits for ever")
	s.Len = 11
	require.Equal(t, Never, m.CanSwapIn(0, s))
}
