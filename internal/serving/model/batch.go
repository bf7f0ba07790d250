package model

// A Batch has the tokens of one step. Sequence s has SeqLens[s] tokens. Its last tokens, which Forward computes, are
// Tokens[QueryStart[s]:QueryStart[s+1]].
type Batch struct {
	Tokens     []int32
	Positions  []int32
	QueryStart []int32 // sequences + 1 entries
	SeqLens    []int32

	Blocks
	Others []Blocks // blocks of groups 1, 2, ... of layers

	// Adapters has the adapter of each sequence: a number from 1, in the order of WithAdapters, or 0 for none. It may be
	// empty, which means none for all sequences.
	Adapters []int32

	Logits []int32 // tokens of the batch whose logits are computed

	States []int32 // tokens of the batch whose hidden states are computed

	// Placeholders lists tokens that are not known yet, because they depend on logits of the previous batch. Only runners
	// of an engine.Device can compute a batch with such tokens.
	Placeholders []Placeholder
}

// A Placeholder is a token of a batch that is not known before the previous batch is computed.
type Placeholder struct {
	Token  int32 // index of the token in Batch.Tokens
	Logits int32 // index in Batch.Logits of the previous batch; the token is the one that was chosen from these logits
}

// Blocks says where the keys and values of a group of layers are. The block table of sequence s is
// BlockTables[s*TableStride:(s+1)*TableStride]; unused entries are ignored.
//
// In a group of states, the state after the token at position p is in entry p / block size. It is kept if this token is
// the last one of the block or of the batch. If the entry is the null block, 0, the state is not kept. The entries of
// the first state that the batch reads and of the last one that it writes must not be null.
type Blocks struct {
	Slots        []int64 // for each token, block × block size + place in the block, or -1 to drop its keys and values
	BlockTables  []int32
	TableStride  int
	CommonPrefix int // tokens of context that all sequences share, in the same blocks
}

func (b *Batch) blocks(group int) *Blocks {
	if group == 0 {
		return &b.Blocks
	}
	return &b.Others[group-1]
}

// A Place says where the keys and values, or the states, of a layer are. Group is the group of its blocks, and Layer its
// layer in the store. Layers of different groups may use the same layer of the store.
type Place struct {
	Group, Layer int
	BlockSize    int // tokens of a block of the group; after them, a state is kept. 0 means those of the store's blocks
}

// Check returns an error if the lengths of the batch's lists, its tokens or its positions do not fit each other or model
// m. It does not check slots, block tables and the numbers of adapters. groups is the number of groups of the model's
// layers.
func (b *Batch) Check(m *Config, groups int) error {
	n := len(b.Tokens)
	switch {
	case n == 0 || len(b.Positions) != n || len(b.Slots) != n:
		return badBatch("%d tokens with %d positions and %d slots", n, len(b.Positions), len(b.Slots))
	case len(b.Others) != groups-1:
		return badBatch("the blocks of %d groups of layers; there are %d", 1+len(b.Others), groups)
	case len(b.QueryStart) != len(b.SeqLens)+1 || int(b.QueryStart[len(b.SeqLens)]) != n:
		return badBatch("%d sequences with %d starts for %d tokens", len(b.SeqLens), len(b.QueryStart), n)
	}
	for i, t := range b.Tokens {
		if t < 0 || int(t) >= m.VocabSize {
			return badBatch("token %d is %d, the vocabulary has %d", i, t, m.VocabSize)
		}
		if p := b.Positions[i]; p < 0 || int(p) >= m.MaxModelLen {
			return badBatch("token %d is at position %d, the model knows %d", i, p, m.MaxModelLen)
		}
	}
	for _, i := range b.Logits {
		if i < 0 || int(i) >= n {
			return badBatch("logits of token %d of %d", i, n)
		}
	}
	if len(b.Adapters) != 0 && len(b.Adapters) != len(b.SeqLens) {
		return badBatch("%d sequences with %d adapters", len(b.SeqLens), len(b.Adapters))
	}
	for _, i := range b.States {
		if i < 0 || int(i) >= n {
			return badBatch("the state of token %d of %d", i, n)
		}
	}
	for _, p := range b.Placeholders {
		if p.Token < 0 || int(p.Token) >= n || p.Logits < 0 {
			return badBatch("logits %d of the batch before for token %d of %d", p.Logits, p.Token, n)
		}
	}
	return nil
}
