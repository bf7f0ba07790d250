package sim

import "errors"

// ErrConfig is wrapped by every complaint about a configuration.
var ErrConfig = errors.New("bad configuration")

// Server is what a system is given: memory and limits. Zero fields are as the
// paper has them for OPT-13B on one A100 with 40 GB (PAPER.md §1), except for
// those that say otherwise. Which fields a system reads is in its System.
type Server struct {
	System string `json:"system"` // one of Systems; DefaultSystem

	BlockSize           int `json:"blockSize"`           // tokens; 16
	NumGPUBlocks        int `json:"numGPUBlocks"`        // 983
	NumCPUBlocks        int `json:"numCPUBlocks"`        // of the swap space; 20 GiB of OPT-13B's: 1,638
	MaxNumBatchedTokens int `json:"maxNumBatchedTokens"` // of an iteration; 2,560, or MaxModelLen if that is more
	// 256; sosp and Orca count a running request once, see paper.Limits
	MaxNumSeqs int `json:"maxNumSeqs"`
	// tokens of a sequence; 2,048; for Orca a power of two of blocks
	MaxModelLen int `json:"maxModelLen"`
	// part of the blocks that admission leaves free, less than 1; -1: none; 0: the system's default
	Watermark float64 `json:"watermark"`

	Prefix    int  `json:"prefix,omitempty"`    // tokens that every prompt begins with
	Swap      bool `json:"swap,omitempty"`      // preempt by swapping
	Chunked   bool `json:"chunked,omitempty"`   // compute prompts in chunks
	NoCaching bool `json:"noCaching,omitempty"` // no prefix caching, where it is the default
	Caching   bool `json:"caching,omitempty"`   // prefix caching, where it is not the default

	Events bool `json:"-"` // record what prefix caches store and remove, for Replica.TakeEvents

	BatchSize int `json:"batchSize,omitempty"` // requests of a static batch; 5
}

// DefaultSystem is what a Server without a System runs.
const DefaultSystem = "vllm-v1"

// Complete fills in what is zero. What is complete stays as it is.
func (s Server) Complete() Server {
	or := func(v *int, otherwise int) {
		if *v == 0 {
			*v = otherwise
		}
	}
	if s.System == "" {
		s.System = DefaultSystem
	}
	or(&s.BlockSize, 16)
	or(&s.NumGPUBlocks, 983)
	or(&s.NumCPUBlocks, 1638)
	or(&s.MaxNumSeqs, 256)
	or(&s.MaxModelLen, 2048)
	or(&s.MaxNumBatchedTokens, max(2560, s.MaxModelLen)) // the artifact's; a whole prompt has to fit
	or(&s.BatchSize, 5)
	if s.Watermark == 0 {
		s.Watermark = -1
		if kind, err := Lookup(s.System); err == nil && kind.DefaultWatermark > 0 {
			s.Watermark = kind.DefaultWatermark
		}
	}
	return s
}

// watermark returns what a block manager takes, where none is 0.
func (s Server) watermark() float64 { return max(0, s.Watermark) }

// readsTokens reports whether the scheduler reads the tokens of requests, and so
// whether they have to be made.
func (s Server) readsTokens(kind *System) bool {
	return kind.CachesPrefixes && !s.NoCaching || kind.CanCachePrefixes && s.Caching
}
