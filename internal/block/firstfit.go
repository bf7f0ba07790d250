package block

// FirstFit hands out free blocks in ascending order of id, which is what the
// handout's loop from 0 to total-1 finds when it is run again for each block.
// It reads the counts themselves, each at most once: a caller that gives the
// blocks it got a count leaves the counts before the cursor free of zeros.
type FirstFit struct {
	counts []int32
	next   int
}

// FirstFitOver starts at block 0 of counts.
func FirstFitOver(counts []int32) FirstFit { return FirstFit{counts: counts} }

// Next returns the next free block, or None when there is none left.
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

// Fill puts the next len(out) free blocks into out and returns how many there
// were.
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
