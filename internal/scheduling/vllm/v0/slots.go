package v0

// PadSlotID is the slot of a token that is not written (vLLM's PAD_SLOT_ID).
const PadSlotID int64 = -1

// SlotStart is the first position of a query that the model writes: with a
// window, the head of a long prompt is not needed (vllm/v0/RULES.md §7). window is 0 for none.
func SlotStart(prompt bool, query, window int) int {
	if !prompt || window == 0 {
		return 0
	}
	return max(0, query-window)
}

// AppendSlots appends where the keys and values of the tokens from context up
// to length go: PadSlotID for those in front of start, else block × size + place. A
// nil table, which is that of a profile run, pads them all (vllm/v0/RULES.md §7).
func AppendSlots(dst []int64, table []int32, blockSize, context, length, start int) []int64 {
	if table == nil {
		for range length {
			dst = append(dst, PadSlotID)
		}
		return dst
	}
	for range start - context {
		dst = append(dst, PadSlotID)
	}
	size := int64(blockSize)
	for position := max(start, context); position < length; position++ {
		dst = append(dst, int64(table[position/blockSize])*size+int64(position%blockSize))
	}
	return dst
}
