package sched

import (
	"cmp"
	"errors"
	"fmt"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// ErrConfig is wrapped by every error about a Config.
var ErrConfig = errors.New("bad scheduler configuration")

// Policy is the order of waiting requests.
type Policy uint8

const (
	FCFS     Policy = iota // in the order of Add; preempted and skipped ones first
	Priority               // by priority, arrival and name, smaller first
)

// Config describes a scheduler.
type Config struct {
	Cache  kvcache.Config
	Policy Policy
	Limits
	Speculation
	Encoder
	Batches

	MaxLoRAs int // number of adapters (Spec.LoRAID above 0) that may run at a time; 0: no limit

	Connector Connector // transfers of keys and values (RULES.md §19)

	// ZeroNewBlocks makes steps list the blocks that the worker must zero. This is needed if a block's old bytes from
	// one layer can be NaN for another layer, as with Mamba groups and layers of different precision (vLLM's
	// needs_kv_cache_zeroing).
	ZeroNewBlocks bool

	// AsVLLM makes the scheduler do exactly what vLLM does, even if this is unsafe. Requests can read blocks and
	// encoder outputs that were never written. They can wait for each other or preempt each other for ever. A step can
	// be empty although a request could run. vllm/v1/RULES.md §17 and §19 to §21 list these differences.
	AsVLLM bool
}

// Limits say which requests run in a step, and with how many tokens.
type Limits struct {
	MaxNumSeqs                int // running requests
	MaxNumBatchedTokens       int // tokens in a step
	LongPrefillTokenThreshold int // largest number of tokens of one request in a step; 0: no limit

	DisableChunkedPrefill bool // a request waits until the budget of a step suffices for its prompt
	AdmitChunks           bool // a request is admitted if its first chunk fits; otherwise its whole sequence must fit
}

// Speculation is about draft tokens.
type Speculation struct {
	NumLookaheadTokens   int  // slots for the draft model of each request
	NumSpeculativeTokens int  // draft tokens of each request and step; 0: no speculation
	ReturnDrafts         bool // blocks of rejected drafts are freed at once; vLLM keeps them
}

// Encoder is about multimodal items (RULES.md §20).
type Encoder struct {
	EncoderCacheSize         int  // embeddings of items that the worker keeps; 0: no encoder, and items only change hashes of blocks
	MaxNumEncoderInputTokens int  // embeddings that the worker computes in a step at most; 0: EncoderCacheSize
	DisableChunkedMMInput    bool // a chunk that reaches an item contains the whole item
}

// Batches says how many steps may be in flight.
type Batches struct {
	// AsyncScheduling makes Schedule schedule the next step of a request before the tokens of its last step are known,
	// with placeholders for these tokens (RULES.md §15).
	AsyncScheduling bool

	PipelineParallelSize int // stages that compute a step one after the other; 0: one

	// MaxConcurrentBatches is the largest number of steps in flight. 0 means PipelineParallelSize, plus 1 with
	// AsyncScheduling.
	MaxConcurrentBatches int
}

func (c *Config) complete() error {
	c.PipelineParallelSize = cmp.Or(c.PipelineParallelSize, 1)
	if c.MaxConcurrentBatches == 0 {
		c.MaxConcurrentBatches = c.PipelineParallelSize
		if c.AsyncScheduling {
			c.MaxConcurrentBatches++
		}
	}
	c.MaxNumEncoderInputTokens = cmp.Or(c.MaxNumEncoderInputTokens, c.EncoderCacheSize)
	return c.check()
}

const maxBatches = 64

func (c *Config) check() error {
	switch {
	case int(c.Policy) >= len(orders):
		return fmt.Errorf("%w: policy %d", ErrConfig, c.Policy)
	case c.Cache.MaxModelLen == 1:
		return fmt.Errorf("%w: max_model_len is 1: want at least 2, for a token of the prompt and a generated one", ErrConfig)
	case c.MaxNumSeqs < 1:
		return fmt.Errorf("%w: max_num_seqs is %d: want at least 1", ErrConfig, c.MaxNumSeqs)
	case c.MaxNumBatchedTokens < 1:
		return fmt.Errorf("%w: max_num_batched_tokens is %d: want at least 1", ErrConfig, c.MaxNumBatchedTokens)
	case c.PipelineParallelSize < 1 || c.PipelineParallelSize > maxBatches-1:
		return fmt.Errorf("%w: pipeline_parallel_size is %d: want 1 to %d", ErrConfig, c.PipelineParallelSize, maxBatches-1)
	case c.MaxConcurrentBatches < 1 || c.MaxConcurrentBatches > maxBatches:
		return fmt.Errorf("%w: max_concurrent_batches is %d: want 1 to %d", ErrConfig, c.MaxConcurrentBatches, maxBatches)
	case c.ReturnDrafts && c.MaxConcurrentBatches > 1:
		return fmt.Errorf("%w: blocks of rejected drafts cannot be returned while the next step, which writes to them, is in flight", ErrConfig)
	case c.AsVLLM && 0 < c.LongPrefillTokenThreshold && c.LongPrefillTokenThreshold <= c.NumSpeculativeTokens:
		return fmt.Errorf("%w: a threshold of %d tokens clips the padding of a decode to 1 and %d drafts, and vLLM then schedules more drafts than tokens",
			ErrConfig, c.LongPrefillTokenThreshold, c.NumSpeculativeTokens)
	case c.LongPrefillTokenThreshold < 0 || c.NumLookaheadTokens < 0 || c.NumSpeculativeTokens < 0:
		return fmt.Errorf("%w: long_prefill_token_threshold is %d, num_lookahead_tokens %d, num_speculative_tokens %d: want none negative",
			ErrConfig, c.LongPrefillTokenThreshold, c.NumLookaheadTokens, c.NumSpeculativeTokens)
	case c.EncoderCacheSize < 0 || c.MaxNumEncoderInputTokens < 0 || c.MaxNumEncoderInputTokens > 0 && c.EncoderCacheSize == 0:
		return fmt.Errorf("%w: encoder_cache_size is %d, max_num_encoder_input_tokens %d: want none negative, and the second 0 if the first is",
			ErrConfig, c.EncoderCacheSize, c.MaxNumEncoderInputTokens)
	case c.MaxLoRAs < 0:
		return fmt.Errorf("%w: max_loras is %d: want at least 0", ErrConfig, c.MaxLoRAs)
	case c.DisableChunkedPrefill && c.MaxNumBatchedTokens < c.Cache.MaxModelLen:
		return fmt.Errorf("%w: without chunks a step of %d tokens cannot hold a sequence of %d", ErrConfig, c.MaxNumBatchedTokens, c.Cache.MaxModelLen)
	}
	return nil
}
