package encodercache

import "sort"

// An Input is one item that the encoder turns into embeddings for the tokens
// Offset to Offset+Length-1 of a prompt.
type Input struct {
	Hash           string
	Offset, Length int
	NumEmbeds      int   // size of the output; equals Length without a Mask
	before         []int // number of embeddings before each token; nil without a Mask
}

// Mask sets which tokens of the input take an embedding: those that are not 0 in isEmbed, which
// has a byte for each token of the prompt. The others are text (vLLM: PlaceholderRange.is_embed).
func (in *Input) Mask(isEmbed []byte) {
	in.before = make([]int, in.Length+1)
	for k := range in.Length {
		in.before[k+1] = in.before[k]
		if isEmbed[in.Offset+k] != 0 {
			in.before[k+1]++
		}
	}
	in.NumEmbeds = in.before[in.Length]
}

// Embeds returns how many embeddings the tokens [start, end) of the prompt take.
func (in *Input) Embeds(start, end int) int {
	start, end = max(start-in.Offset, 0), min(end-in.Offset, in.Length)
	switch {
	case end <= start:
		return 0
	case in.before == nil:
		return end - start
	}
	return in.before[end] - in.before[start]
}

// A Request has the inputs of a request and its references to outputs.
type Request struct {
	inputs []Input
	held   []int // indexes of the inputs to whose outputs it refers
}

// NewRequest makes a request. The inputs must be in ascending order and not overlap.
func NewRequest(inputs []Input) *Request { return &Request{inputs: inputs} }

// Inputs returns the inputs of r, which must not be changed.
func (r *Request) Inputs() []Input { return r.inputs }

// Window returns the range [lo, hi) of inputs that have tokens in [start, end).
func (r *Request) Window(start, end int) (lo, hi int) {
	lo = sort.Search(len(r.inputs), func(i int) bool { return r.inputs[i].Offset+r.inputs[i].Length > start })
	hi = sort.Search(len(r.inputs), func(i int) bool { return r.inputs[i].Offset >= end })
	return lo, max(lo, hi)
}

// Shares reports whether r has a reference to the output of input i of o, and returns the index
// of r's input with that output.
func (r *Request) Shares(o *Request, i int) (int, bool) {
	for _, h := range r.held {
		if r.inputs[h].Hash == o.inputs[i].Hash {
			return h, true
		}
	}
	return 0, false
}
