package model

import (
	"llmmemory/internal/serving/kvstore"
)

// A scan computes what tokens of sequences take from the states before them, and the states after them. It is a
// parallel.Task: each call of Do does the work of one sequence for some channels. It updates a state token by token, in
// the order of the sequence. The results therefore have the same bits for any division into steps and batches.
//
// The state after the token at position p belongs into the entry p / blockSize of the sequence's block table. If this
// is the null block, 0, the state is not kept (scheduling/vllm/v1/RULES.md §13).
type scan struct {
	r      *Runner
	layer  *recurrent
	store  *kvstore.Store
	place  int     // layer of the store
	spans  []piece // of all sequences
	starts []int   // the first span of each sequence, and the end
	parts  int     // tasks of each sequence
}

// A piece has tokens of one sequence after which one state is kept. The state is in block dst. The state before
// the piece is in block src, or it is 0 if src is negative.
type piece struct {
	src, dst    int32
	first, last int // tokens [first, last) of the batch
}

// channelsPerTask is the number of channels of a convolution that a task computes.
const channelsPerTask = 512

// plan divides the tokens of a batch into pieces.
func (s *scan) plan(b *Batch, blocks *Blocks, blockSize int) error {
	s.spans, s.starts = s.spans[:0], append(s.starts[:0], 0)
	numBlocks := s.store.Config().NumBlocks
	for i, length := range b.SeqLens {
		first, end := int(b.QueryStart[i]), int(b.QueryStart[i+1])
		position := int(length) - (end - first)
		entries := (int(length) + blockSize - 1) / blockSize
		if position < 0 || entries > blocks.TableStride || (i+1)*blocks.TableStride > len(blocks.BlockTables) {
			return badBatch("sequence %d has %d tokens, of which %d are computed, and tables of %d blocks", i, length, end-first, blocks.TableStride)
		}
		table := blocks.BlockTables[i*blocks.TableStride:][:entries]
		src := int32(-1)
		if position > 0 {
			src = table[(position-1)/blockSize]
		}
		for k := position / blockSize; k < entries; k++ {
			if table[k] == 0 && k < entries-1 {
				continue
			}
			last := first + min((k+1)*blockSize, int(length)) - position
			start := first
			if n := len(s.spans); n > s.starts[i] {
				start = s.spans[n-1].last
			}
			for _, id := range [2]int32{max(src, 0), table[k]} {
				if uint(id) >= uint(numBlocks) {
					return badBatch("a state of sequence %d is in block %d of %d", i, id, numBlocks)
				}
			}
			if src == 0 && position > 0 || table[k] == 0 {
				return badBatch("sequence %d has no block for its state", i)
			}
			s.spans = append(s.spans, piece{src: src, dst: table[k], first: start, last: last})
			src = table[k]
		}
		s.starts = append(s.starts, len(s.spans))
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
	blockSize := place.BlockSize
	if blockSize == 0 {
		blockSize = r.store.Config().BlockSize
	}
	s.r, s.layer, s.store, s.place = r, x, r.store, place.Layer
	if err := s.plan(b, b.blocks(place.Group), blockSize); err != nil {
		return err
	}
	s.parts = (m.convWidth() + channelsPerTask - 1) / channelsPerTask
	r.pool.Run(len(b.SeqLens)*s.parts, s)
	return r.addProduct(&x.output, &l.attnPost, r.x, r.attended, n)
}

// Do computes some channels of one sequence; see parallel.Task.
func (s *scan) Do(_, i int) {
	seq, part := i/s.parts, i%s.parts
	width := s.r.model.convWidth()
	first, end := part*channelsPerTask, min((part+1)*channelsPerTask, width)
	for _, p := range s.spans[s.starts[seq]:s.starts[seq+1]] {
		state := s.enter(p, s.r.model.stateRows(), width, first, end)
		for token := p.first; token < p.last; token++ {
			s.shortConv(token, state, first, end)
		}
	}
}

// enter copies the columns [first, end) of the rows of the state before p to the block of the state after p, and
// returns the state in that block.
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

// shortConv computes the channels [first, end) of one token of LFM2. The projection has three
// parts: a gate of the input, a gate of the output, and the input. The sum begins with the oldest input.
func (s *scan) shortConv(token int, state []float32, first, end int) {
	width, rows := s.r.model.HiddenSize, s.r.model.stateRows()
	source, out := s.r.qkv[token*3*width:][:3*width], s.r.attended[token*width:][:width]
	weights := s.layer.conv
	for c := first; c < end; c++ {
		v := source[c] * source[2*width+c]
		sum := float32(0)
		for k := range rows {
			sum += weights[k*width+c] * state[k*width+c]
		}
		sum += weights[rows*width+c] * v
		if s.layer.convBias != nil {
			sum += s.layer.convBias[c]
		}
		for k := range rows - 1 {
			state[k*width+c] = state[(k+1)*width+c]
		}
		state[(rows-1)*width+c] = v
		out[c] = source[width+c] * sum
	}
}
