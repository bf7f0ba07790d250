package sim

import (
	"cmp"
	"errors"
)

// ErrConfig is wrapped by errors about a configuration.
var ErrConfig = errors.New("bad configuration")

// Server has the size of a system's memory and the limits of its scheduler. The defaults are the paper's for OPT-13B
// on one A100 with 40 GB (PAPER.md §1). The fields of System say which fields of Server a system uses.
type Server struct {
	System string `json:"system"` // one of Systems; default DefaultSystem

	BlockSize           int `json:"blockSize"`           // tokens; default 16
	NumGPUBlocks        int `json:"numGPUBlocks"`        // default 983
	NumCPUBlocks        int `json:"numCPUBlocks"`        // swap space; default 1,638 (20 GiB for OPT-13B)
	MaxNumBatchedTokens int `json:"maxNumBatchedTokens"` // of an iteration; default 2,560, or MaxModelLen if that is more
	// highest number of running sequences; default 256. For sosp and Orca see paper.Limits
	MaxNumSeqs int `json:"maxNumSeqs"`
	// highest number of tokens of a sequence; default 2,048; for Orca, its number of blocks must be a power of two
	MaxModelLen int `json:"maxModelLen"`
	// fraction of the blocks that stays free when a request is admitted, less than 1; -1 means none; 0 means
	// the system's default
	Watermark float64 `json:"watermark"`

	Prefix    int  `json:"prefix,omitempty"`    // tokens that all prompts begin with
	Swap      bool `json:"swap,omitempty"`      // preempt by swapping
	Chunked   bool `json:"chunked,omitempty"`   // compute prompts in chunks
	NoCaching bool `json:"noCaching,omitempty"` // disable prefix caching, for systems that have it by default
	Caching   bool `json:"caching,omitempty"`   // enable prefix caching, for systems that do not

	Events bool `json:"-"` // record events of prefix caches, for Replica.TakeEvents

	BatchSize int `json:"batchSize,omitempty"` // requests of a static batch; default 5
}

// DefaultSystem is the system of a Server without a System.
const DefaultSystem = "vllm-v1"

// Complete returns the server with defaults for zero fields.
func (s Server) Complete() Server {
	s.System = cmp.Or(s.System, DefaultSystem)
	s.BlockSize = cmp.Or(s.BlockSize, 16)
	s.NumGPUBlocks = cmp.Or(s.NumGPUBlocks, 983)
	s.NumCPUBlocks = cmp.Or(s.NumCPUBlocks, 1638)
	s.MaxNumSeqs = cmp.Or(s.MaxNumSeqs, 256)
	s.MaxModelLen = cmp.Or(s.MaxModelLen, 2048)
	s.MaxNumBatchedTokens = cmp.Or(s.MaxNumBatchedTokens, max(2560, s.MaxModelLen)) // a whole prompt must fit
	s.BatchSize = cmp.Or(s.BatchSize, 5)
	if kind, err := Lookup(s.System); err == nil {
		s.Watermark = cmp.Or(s.Watermark, kind.DefaultWatermark)
	}
	s.Watermark = cmp.Or(s.Watermark, -1)
	return s
}

// watermark returns the watermark as block managers expect it. For them, 0 means that there is no watermark.
func (s Server) watermark() float64 { return max(0, s.Watermark) }

func (s Server) readsTokens(kind *System) bool {
	return kind.CachesPrefixes && !s.NoCaching || kind.CanCachePrefixes && s.Caching
}
