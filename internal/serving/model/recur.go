package model

import (
	"math"
	"slices"

	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model/matrix"
)

// A scan computes what tokens of sequences take from the states before them, and the states after them. It is a
// parallel.Task: each call of Do does the work of one sequence for some channels. It updates a state token by token, in
// the order of the sequence. The results therefore have the same bits for any division into steps and batches.
type scan struct {
	r     *Runner
	layer *recurrent
	store *kvstore.Store
	place int         // layer of the store
	plans []statePlan // of each group of layers; nil without states
	first []int       // the first layer of each group
	plan  *statePlan  // of the layer
	wave  int         // the first sequence of the wave
	heads bool        // the tasks compute heads, not channels of the convolution
	parts int         // tasks of each sequence

	convolved []float32   // [tokens][channels]
	decays    []float32   // [tokens][heads]: what states are multiplied by
	factors   []float32   // [tokens][heads]: what is added to states is multiplied by
	values    [][]float32 // of each worker: space for two values of a head
}

// channelsPerTask is the number of channels of a convolution that a task computes.
const channelsPerTask = 512

// begin plans the states of a batch.
func (s *scan) begin(b *Batch) error {
	if s.plans == nil {
		return nil
	}
	c := s.store.Config()
	for i, place := range s.r.places {
		if !s.r.model.Recurrent(i) || s.first[place.Group] != i {
			continue
		}
		size := place.BlockSize
		if size == 0 {
			size = c.BlockSize
		}
		if err := s.plans[place.Group].set(b, b.blocks(place.Group), size, c.NumBlocks); err != nil {
			return err
		}
	}
	return nil
}

// recur computes a layer with states for the tokens of a batch, up to and including its projection to the residual
// stream.
func (r *Runner) recur(i int, b *Batch) error {
	m, n := r.model, len(b.Tokens)
	l, place, s := &m.layers[i], r.places[i], &r.scan
	x := l.recurrent
	r.multiply(&x.input, r.qkv, r.normalized(&l.attnNorm, n), n)
	s.layer, s.place, s.plan = x, place.Layer, &s.plans[place.Group]
	s.run(n)
	return r.addProduct(&x.output, &l.attnPost, r.x, r.attended, n)
}

func (s *scan) init(r *Runner) {
	s.r, s.store = r, r.store
	c := r.model.Recurrence
	if c == nil {
		return
	}
	s.plans, s.first = make([]statePlan, r.groups), make([]int, r.groups)
	for i, place := range slices.Backward(r.places) {
		if r.model.Recurrent(i) {
			s.first[place.Group] = i
		}
	}
	for range r.pool.Size() {
		s.values = append(s.values, make([]float32, 2*c.HeadDim))
	}
}

func (s *scan) run(tokens int) {
	m := s.r.model
	c := m.Recurrence
	s.heads, s.parts = false, (m.convWidth()+channelsPerTask-1)/channelsPerTask
	if c.Kind == ShortConv {
		s.runWaves()
		return
	}
	s.convolved = grow(s.convolved, tokens*m.convWidth())
	s.decays, s.factors = grow(s.decays, tokens*c.Heads), grow(s.factors, tokens*c.Heads)
	s.runWaves()
	s.r.each(tokens, rowJob{op: opPrepareHeads})
	s.heads, s.parts = true, c.Heads
	s.runWaves()
	s.r.each(tokens, rowJob{op: opGate})
}

func (s *scan) runWaves() {
	start := 0
	for _, end := range s.plan.waves {
		s.wave = start
		s.r.pool.Run((end-start)*s.parts, s)
		start = end
	}
}

// Do computes some channels, or a head, of one sequence; see parallel.Task.
func (s *scan) Do(worker, i int) {
	sequence, part := s.wave+i/s.parts, i%s.parts
	m := s.r.model
	first, end := part*channelsPerTask, min((part+1)*channelsPerTask, m.convWidth())
	if s.heads {
		size := m.Recurrence.matrixSize()
		first = m.matrixOffset() + part*size
		end = first + size
	}
	for _, p := range s.plan.piecesOf(sequence) {
		if s.heads {
			state := s.enter(p, 1, 0, first, end)[first:end]
			for token := p.first; token < p.last; token++ {
				s.head(token, part, state, s.values[worker])
			}
			continue
		}
		state := s.enter(p, m.stateRows(), m.convWidth(), first, end)
		for token := p.first; token < p.last; token++ {
			if m.Recurrence.Kind == ShortConv {
				s.shortConv(token, state, first, end)
			} else {
				s.convolve(token, state, first, end)
			}
		}
	}
}

// enter copies the columns [first, end) of the rows of the state before p to the block of the state after p, and
// returns the state in that block. Rows are width numbers apart.
func (s *scan) enter(p piece, rows, width, first, end int) []float32 {
	dst := s.store.State(s.place, p.dst)
	if p.src == p.dst {
		return dst
	}
	var src []float32
	if p.src >= 0 {
		src = s.store.State(s.place, p.src)
	}
	for k := range rows {
		row := dst[k*width+first : k*width+end]
		if src == nil {
			clear(row)
		} else {
			copy(row, src[k*width+first:k*width+end])
		}
	}
	return dst
}

// shortConv computes the channels [first, end) of one token of LFM2.
func (s *scan) shortConv(token int, state []float32, first, end int) {
	width := s.r.model.HiddenSize
	source, out := s.r.qkv[token*3*width:][:3*width], s.r.attended[token*width:][first:end]
	inputs := source[2*width+first : 2*width+end]
	for c, gate := range source[first:end] {
		inputs[c] *= gate
	}
	s.sumInputs(out, inputs, state, first)
	for c, gate := range source[width+first : width+end] {
		out[c] *= gate
	}
}

// convolve computes the channels [first, end) of one token of the other kinds, with their activation.
func (s *scan) convolve(token int, state []float32, first, end int) {
	m := s.r.model
	width := m.convWidth()
	inputs := s.r.qkv[token*s.r.inWidth+m.Recurrence.inner():][first:end]
	out := s.convolved[token*width:][first:end]
	s.sumInputs(out, inputs, state, first)
	matrix.SiLUMul(out, out, ones[:len(out)])
}

// sumInputs sets out to the convolution of channels from first on, and appends inputs to the state, whose oldest inputs
// go. The sum begins with the oldest input.
func (s *scan) sumInputs(out, inputs, state []float32, first int) {
	width, rows, n := s.r.model.convWidth(), s.r.model.stateRows(), len(out)
	clear(out)
	for k := range rows {
		old, weights := state[k*width+first:][:n], s.layer.conv[k*width+first:][:n]
		for c, w := range weights {
			out[c] += w * old[c]
		}
		next := inputs
		if k+1 < rows {
			next = state[(k+1)*width+first:][:n]
		}
		copy(old, next)
	}
	for c, w := range s.layer.conv[rows*width+first:][:n] {
		out[c] += w * inputs[c]
	}
	if s.layer.convBias != nil {
		for c, v := range s.layer.convBias[first:][:n] {
			out[c] += v
		}
	}
}

// head computes one token of a head, whose matrix is state. values has space for two values.
func (s *scan) head(token, head int, state, values []float32) {
	c, inner := s.r.model.Recurrence, s.r.model.Recurrence.inner()
	convolved := s.convolved[token*s.r.model.convWidth():]
	keyHead := head / (c.Heads / c.KeyHeads) * c.KeyDim
	decay, factor := s.decays[token*c.Heads+head], s.factors[token*c.Heads+head]
	out, added := s.r.attended[token*inner+head*c.HeadDim:][:c.HeadDim], values[:c.HeadDim]
	if c.Kind == Mamba2 { // x, B, C
		value := convolved[head*c.HeadDim:][:c.HeadDim]
		key, query := convolved[inner+keyHead:][:c.KeyDim], convolved[inner+c.keyWidth()+keyHead:][:c.KeyDim]
		for i, v := range value {
			added[i] = factor * v
		}
		matrix.UpdateState(out, state, added, key, query, decay)
		for i, v := range value {
			out[i] += s.layer.skip[head] * v
		}
		return
	}
	query, key := convolved[keyHead:][:c.KeyDim], convolved[c.keyWidth()+keyHead:][:c.KeyDim]
	value := convolved[2*c.keyWidth()+head*c.HeadDim:][:c.HeadDim]
	known := values[c.HeadDim:]
	matrix.ReadState(known, state, key)
	for i, v := range value {
		added[i] = factor * (v - decay*known[i])
	}
	matrix.UpdateState(out, state, added, key, query, decay)
}

// prepareHeads sets the decays and factors of a token. With DeltaNet it also normalizes the queries and keys, and scales
// the queries.
func (s *scan) prepareHeads(token int) {
	m := s.r.model
	c := m.Recurrence
	row := s.r.qkv[token*s.r.inWidth:][:s.r.inWidth]
	numbers := row[c.inner()+m.convWidth():]
	decays, factors := s.decays[token*c.Heads:][:c.Heads], s.factors[token*c.Heads:][:c.Heads]
	if c.Kind == Mamba2 {
		for h := range decays {
			step := max(softplus(float64(numbers[h]+s.layer.stepBias[h])), c.MinStep)
			if c.MaxStep > 0 {
				step = min(step, c.MaxStep)
			}
			decays[h], factors[h] = float32(math.Exp(-step*float64(s.layer.decay[h]))), float32(step)
		}
		return
	}
	for h := range decays {
		step := softplus(float64(numbers[c.Heads+h] + s.layer.stepBias[h]))
		decays[h] = float32(math.Exp(-step * float64(s.layer.decay[h])))
		factors[h] = float32(1 / (1 + math.Exp(-float64(numbers[h]))))
	}
	convolved := s.convolved[token*m.convWidth():][:2*c.keyWidth()]
	for h := 0; h < len(convolved); h += c.KeyDim {
		scale := 1.0
		if h < c.keyWidth() { // a query
			scale = 1 / math.Sqrt(float64(c.KeyDim))
		}
		unitLength(convolved[h:][:c.KeyDim], scale)
	}
}

func softplus(x float64) float64 {
	if x > 20 {
		return x
	}
	return math.Log1p(math.Exp(x))
}

// unitLength divides x by its length and multiplies it by scale (l2norm in transformers, with an epsilon of 1e-6).
func unitLength(x []float32, scale float64) {
	sum := 1e-6
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	factor := float32(scale / math.Sqrt(sum))
	for i := range x {
		x[i] *= factor
	}
}

// gate multiplies the outputs of the heads of a token by their gates, and normalizes them: with Mamba 2 after the gate,
// over the heads of a key head together, with DeltaNet before the gate, over each head.
func (s *scan) gate(token int) {
	m := s.r.model
	c := m.Recurrence
	out, gate := s.r.attended[token*c.inner():][:c.inner()], s.r.qkv[token*s.r.inWidth:][:c.inner()]
	if c.Kind == Mamba2 {
		matrix.SiLUMul(out, gate, out)
		n := c.inner() / c.KeyHeads
		for start := 0; start < len(out); start += n {
			rmsNorm(out[start:][:n], out[start:][:n], s.layer.norm[start:][:n], m.NormEps)
		}
		return
	}
	normHeads(out, c.HeadDim, s.layer.norm, m.NormEps)
	matrix.SiLUMul(out, gate, out)
}
