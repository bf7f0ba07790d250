package v0

import "slices"

// Slots returns the slots of the tokens [context, length) of a sequence with the given block table (vllm/v0/RULES.md
// §7). A slot is
//
//	block × blockSize + offset
//
// or -1 (vLLM's PAD_SLOT_ID) if the token's key and value are not written. The tokens before start are not written.
// start is 0, unless the tokens are a prompt that is longer than the window.
//
// In a profile run there is no table. If table is nil, Slots returns as many slots as length says, all of them -1.
func Slots(table []int32, blockSize, context, length, window int, prompt bool) (start int, slots []int64) {
	if prompt && window > 0 {
		start = max(0, length-context-window)
	}
	if table == nil {
		return start, slices.Repeat([]int64{-1}, length)
	}
	slots = []int64{}
	for position := context; position < length; position++ {
		slot := int64(-1)
		if position >= start {
			slot = int64(table[position/blockSize])*int64(blockSize) + int64(position%blockSize)
		}
		slots = append(slots, slot)
	}
	return start, slots
}
