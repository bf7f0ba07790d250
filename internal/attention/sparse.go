package attention

// sees reports whether a row attends to a token of its reach.
func (r *Runner) sees(row *row, token int) bool {
	s := r.batch.Sparse
	if s == nil {
		return true
	}
	heads, head, step := r.batch.NumHeads, row.head, s.HeadSlidingStep
	if step < 0 {
		heads, head, step = r.cache.NumKVHeads, row.head/r.group, -step
	}
	offset := (s.Rank*heads+head)*step + 1
	block := token / s.BlockSize
	return (block+offset)%s.VertStride == 0 || block > row.position/s.BlockSize-s.LocalBlocks
}

// hide gives the tokens that a row does not see a score.
func (r *Runner) hide(row *row, scores []float32, part, from, to int, score float32) {
	for t := from; t < to; t++ {
		if !r.sees(row, part*partitionSize+t) {
			scores[t] = score
		}
	}
}
