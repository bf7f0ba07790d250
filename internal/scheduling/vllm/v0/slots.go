package v0

// PadSlotID is the slot of a token that is not written (vLLM's PAD_SLOT_ID).
const PadSlotID int64 = -1

// SlotStart returns the index of the first token of a query of the given length whose key and value are written to the
// cache. If window is above 0, the tokens of a prompt before the window are not written (vllm/v0/RULES.md §7).
func SlotStart(prompt bool, query, window int) int {
	if !prompt || window == 0 {
		return 0
	}
	return max(0, query-window)
}

// AppendSlots appends the slots of the tokens from context to length-1. A token before start gets PadSlotID, the
// others get block × blockSize + offset. If table is nil, as in a profile run, AppendSlots appends PadSlotID for
// length tokens (vllm/v0/RULES.md §7).
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
