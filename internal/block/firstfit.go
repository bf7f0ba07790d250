package block

// FirstFit returns free blocks in ascending order of id. The homework's handout searches from block 0 again for each
// new block. FirstFit finds the same blocks, but continues after the last block that it has returned. The caller must
// set the counts of the blocks that it takes.
type FirstFit struct {
	counts []int32
	next   int
}

// FirstFitOver returns a FirstFit that starts at block 0.
func FirstFitOver(counts []int32) FirstFit { return FirstFit{counts: counts} }

// Next returns the next free block, or None if no free block is left.
func (f *FirstFit) Next() int32 {
	i := f.next
	if i >= len(f.counts) {
		return None
	}
	if f.counts[i] != 0 {
		i += firstZero(f.counts[i:])
		if i == len(f.counts) {
			f.next = i
			return None
		}
	}
	f.next = i + 1
	return int32(i)
}

// Fill puts the next free blocks into out and returns their number. The number is less than len(out) if too few blocks
// are free.
func (f *FirstFit) Fill(out []int32) int {
	for n := range out {
		id := f.Next()
		if id == None {
			return n
		}
		out[n] = id
	}
	return len(out)
}
