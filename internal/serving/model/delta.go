package model

// deltaInput loads the projections of a DeltaNet layer in the order of recurrent: the gates z, then queries, keys and
// values, then b and a of each head. In Qwen3-Next's two tensors, the rows of a key head and of its heads are together:
// its query, its key, the values and the gates of its heads; and in the other tensor the b and the a of its heads.
// In Qwen3.5, there are four tensors: queries, keys and values; z; b; a.
func (l *loader) deltaInput(i int) linear {
	c, n, r := l.config, l.names, l.config.Recurrence
	named := func(name string) string { return tensorName(name, i) }
	inner, keys := r.inner(), r.keyWidth()
	if n.recurrentZ != "" {
		s := shape{inputs: c.HiddenSize, outputs: []int{inner, 2*keys + inner, r.Heads, r.Heads}, adapts: true}
		return l.linear(s, named(n.recurrentZ), named(n.recurrentIn), named(n.recurrentB), named(n.recurrentA))
	}
	perKey := r.Heads / r.KeyHeads
	values := perKey * r.HeadDim
	group := 2*r.KeyDim + 2*values
	rows := make([][]span, 2)
	every := func(list *[]span, stride, start, length int) {
		for k := range r.KeyHeads {
			*list = append(*list, span{k*stride + start, k*stride + start + length})
		}
	}
	every(&rows[0], group, 2*r.KeyDim+values, values)
	every(&rows[0], group, 0, r.KeyDim)
	every(&rows[0], group, r.KeyDim, r.KeyDim)
	every(&rows[0], group, 2*r.KeyDim, values)
	every(&rows[1], 2*perKey, 0, perKey)
	every(&rows[1], 2*perKey, perKey, perKey)
	s := shape{inputs: c.HiddenSize, outputs: []int{2*inner + 2*keys, 2 * r.Heads}, rows: rows, adapts: true}
	return l.linear(s, named(n.recurrentIn), named(n.recurrentB))
}
