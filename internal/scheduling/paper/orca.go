package paper

import "fmt"

// A Policy says how long Orca assumes an output to be when it reserves memory.
type Policy uint8

const (
	Oracle Policy = iota // the true length
	Pow2                 // the next power of two
	Max                  // the length of the longest sequence
)

// Tokens returns the number of tokens that Orca reserves for a prompt and an output. longest is the
// maximum length of a sequence (vllm/v0/RULES.md §11).
func (p Policy) Tokens(prompt, output, longest int) int {
	switch p {
	case Pow2:
		output = 1 << order(output)
	case Max:
		output = longest
	}
	return min(prompt+output, longest)
}

// OrcaConfig describes Orca's memory.
type OrcaConfig struct {
	BlockSize    int // tokens in a block
	NumGPUBlocks int
	MaxModelLen  int // maximum number of tokens of a sequence; the number of their blocks must be a power of two
	Policy       Policy
}

// A Reservation is the memory of the paper's Orca baseline. A sequence gets one contiguous chunk from a buddy
// allocator when it starts, and keeps it until its request ends. The size of the chunk depends on OrcaConfig.Policy.
type Reservation struct {
	config OrcaConfig
	buddy  *Buddy
	used   int // blocks in used chunks
}

// NewReservation makes a memory whose blocks are all free.
func NewReservation(config OrcaConfig) (*Reservation, error) {
	if config.BlockSize < 1 || config.MaxModelLen < config.BlockSize || config.MaxModelLen%config.BlockSize != 0 || config.Policy > Max {
		return nil, fmt.Errorf("%w: sequences of at most %d tokens in blocks of %d, policy %d", ErrConfig, config.MaxModelLen, config.BlockSize, config.Policy)
	}
	buddy, err := newBuddy(config.NumGPUBlocks, config.MaxModelLen/config.BlockSize)
	if err != nil {
		return nil, err
	}
	return &Reservation{config: config, buddy: buddy}, nil
}

// Blocks returns the number of blocks that a sequence needs. Reserve rounds this number up to a power of two.
func (r *Reservation) Blocks(prompt, output int) int {
	size := r.config.BlockSize
	return (r.config.Policy.Tokens(prompt, output, r.config.MaxModelLen) + size - 1) / size
}

// Fits reports whether enough chunks are free to reserve one for each of the given number of sequences.
func (r *Reservation) Fits(prompt, output, sequences int) bool {
	return r.buddy.fits(r.Blocks(prompt, output), sequences)
}

// A Chunk is the blocks of a sequence.
type Chunk struct{ Start, Size int32 }

// Reserve reserves one chunk for each of the given number of sequences and appends the chunks to dst. If too few
// chunks are free, it reserves none and returns an error.
func (r *Reservation) Reserve(dst []Chunk, prompt, output, sequences int) ([]Chunk, error) {
	n := r.Blocks(prompt, output)
	if !r.buddy.fits(n, sequences) {
		return dst, fmt.Errorf("%w: no %d chunks of %d blocks", ErrNoFreeBlocks, sequences, 1<<order(n))
	}
	for range sequences {
		start, size, _ := r.buddy.take(n)
		dst = append(dst, Chunk{start, int32(size)})
		r.used += size
	}
	return dst, nil
}

// Free frees a chunk.
func (r *Reservation) Free(c Chunk) {
	r.buddy.release(c.Start)
	r.used -= int(c.Size)
}

// Buddy returns the allocator, which must not be changed.
func (r *Reservation) Buddy() *Buddy { return r.buddy }
