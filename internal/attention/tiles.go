package attention

// fused says whether the rows can read the blocks where they lie.
func (r *Runner) fused(w *scratch) bool { return false }

func (r *Runner) attendTiles(w *scratch, seq, kvHead, part int) {}
