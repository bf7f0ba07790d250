package model

// A statePlan says where the states of a batch are, for one group of layers.
//
// The state after the token at position p belongs into the entry p / blockSize of the sequence's block table. If this
// is the null block, 0, the state is not kept (scheduling/vllm/v1/RULES.md §13).
type statePlan struct {
	pieces []piece // of all sequences
	starts []int   // the first piece of each sequence, and the end

	// If a sequence begins with a state that another sequence of the batch writes, it is in a later wave than that
	// sequence.
	waves   []int          // the first sequence after each wave
	written map[int32]bool // the blocks that a wave writes
}

// A piece has tokens of one sequence after which one state is kept. The state is in block dst. The state before
// the piece is in block src, or it is 0 if src is negative.
type piece struct {
	src, dst    int32
	first, last int // tokens [first, last) of the batch
}

// set divides the tokens of a batch into pieces.
func (p *statePlan) set(b *Batch, blocks *Blocks, blockSize, numBlocks int) error {
	p.pieces, p.starts = p.pieces[:0], append(p.starts[:0], 0)
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
			if n := len(p.pieces); n > p.starts[i] {
				start = p.pieces[n-1].last
			}
			for n, id := range [2]int32{src, table[k]} {
				if (n == 1 || position > 0) && (id <= 0 || int(id) >= numBlocks) {
					return badBatch("a state of sequence %d is in block %d of %d", i, id, numBlocks)
				}
			}
			p.pieces = append(p.pieces, piece{src: src, dst: table[k], first: start, last: last})
			src = table[k]
		}
		p.starts = append(p.starts, len(p.pieces))
	}
	p.arrange(len(b.SeqLens))
	return nil
}

func (p *statePlan) piecesOf(sequence int) []piece {
	return p.pieces[p.starts[sequence]:p.starts[sequence+1]]
}

// arrange sets waves. The scheduler lists a sequence that writes a state before the sequences that begin with it
// (mamba_cache_mode "all"; in the other modes there are none).
func (p *statePlan) arrange(sequences int) {
	if p.written == nil {
		p.written = map[int32]bool{}
	}
	clear(p.written)
	p.waves = p.waves[:0]
	for i := range sequences {
		pieces := p.piecesOf(i)
		if len(pieces) > 0 && p.written[pieces[0].src] {
			p.waves = append(p.waves, i)
			clear(p.written)
		}
		for _, piece := range pieces {
			p.written[piece.dst] = true
		}
	}
	p.waves = append(p.waves, sequences)
}
