package encodercache

import "sort"

// An Input is one item that the encoder turns into embeddings for the tokens
// Offset to Offset+Length-1 of a prompt.
type Input struct {
	Hash           string
	Offset, Length int
	NumEmbeds      int   // of the output; Length unless only some tokens take an embedding
	before         []int // embeddings of tokens before each token; nil: each takes one
}

// Mask sets which tokens of in take one of its embeddings; the others are text between them
// (vLLM: PlaceholderRange.is_embed).
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

// Embeds is how many embeddings the tokens of [start, end) of the prompt take.
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

// A Request is the inputs of a request and which outputs it refers to.
type Request struct {
	inputs []Input
	held   []int // indexes of inputs
}

// NewRequest makes a request of inputs in ascending order, without overlaps.
func NewRequest(inputs []Input) *Request { return &Request{inputs: inputs} }

// Inputs are the inputs of r; not to be changed.
func (r *Request) Inputs() []Input { return r.inputs }

// Window is the range of inputs that have tokens in [start, end).
func (r *Request) Window(start, end int) (lo, hi int) {
	lo = sort.Search(len(r.inputs), func(i int) bool { return r.inputs[i].Offset+r.inputs[i].Length > start })
	hi = sort.Search(len(r.inputs), func(i int) bool { return r.inputs[i].Offset >= end })
	return lo, max(lo, hi)
}

// Shares reports whether r refers to the output of input i of o, and returns the input of r
// that does.
func (r *Request) Shares(o *Request, i int) (int, bool) {
	for _, h := range r.held {
		if r.inputs[h].Hash == o.inputs[i].Hash {
			return h, true
		}
	}
	return 0, false
}
