package block

// FirstFit returns free blocks in ascending order of id. These are the blocks that the handout's loop from 0 to total-1
// finds if the loop runs once for each new block. FirstFit reads each count at most once. The caller must set the
// counts of the blocks that it takes.
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
