package model

// PackedWeights returns the matrices that decoding reads in each step.
func (m *Model) PackedWeights() [][]byte {
	var all [][]byte
	m.eachLinear(func(l *linear) {
		for _, p := range l.parts {
			all = append(all, p.Data())
		}
	})
	return all
}

// SetMLPRows sets how many rows the MLP of a layer computes together.
func (r *Runner) SetMLPRows(n int) { r.maxMLPRows = n }

// MLPRows is the number of rows for which there is memory.
func (r *Runner) MLPRows() int { return cap(r.act) / max(r.local.IntermediateSize, r.actWidth) }
