package sched

import (
	"errors"
	"fmt"

	"llmmemory/internal/vllm/v1/kvcache"
)

// ErrConfig is wrapped by every complaint about a Config.
var ErrConfig = errors.New("bad scheduler configuration")

// Policy is the order of waiting requests.
type Policy uint8

const (
	FCFS     Policy = iota // as they come; preempted ones in front
	Priority               // by priority, arrival and name, smaller first
)

// Config describes a scheduler.
type Config struct {
	Cache               kvcache.Config
	Policy              Policy
	MaxNumSeqs          int // running requests
	MaxNumBatchedTokens int // tokens in a step

	LongPrefillTokenThreshold int // most tokens of one request in a step; 0: no limit
	NumLookaheadTokens        int // slots for the draft model of each request
	NumSpeculativeTokens      int // draft tokens of each request and step; 0: no speculation

	DisableChunkedPrefill bool // no chunked prefill: a prompt is computed in one step
	AdmitChunks           bool // admit a request if its first chunk fits, not its whole sequence
	ReturnDrafts          bool // give blocks of rejected drafts back at once; vLLM keeps them

	// ForgetUnscheduled removes the keys of blocks that a request registered
	// in this step when it is preempted in the same step, which only happens
	// with priorities. vLLM keeps them, although the blocks are never computed,
	// so a later request can hit them and read what was there before.
	ForgetUnscheduled bool
}

func (c *Config) check() error {
	switch {
	case c.Policy > Priority:
		return fmt.Errorf("%w: policy %d", ErrConfig, c.Policy)
	case c.MaxNumSeqs < 1:
		return fmt.Errorf("%w: %d running requests at most", ErrConfig, c.MaxNumSeqs)
	case c.MaxNumBatchedTokens < 1:
		return fmt.Errorf("%w: %d tokens in a step at most", ErrConfig, c.MaxNumBatchedTokens)
	case c.LongPrefillTokenThreshold < 0 || c.NumLookaheadTokens < 0 || c.NumSpeculativeTokens < 0:
		return fmt.Errorf("%w: a negative number of tokens", ErrConfig)
	case c.DisableChunkedPrefill && c.MaxNumBatchedTokens < c.Cache.MaxModelLen:
		return fmt.Errorf("%w: without chunks a step of %d tokens cannot hold a sequence of %d", ErrConfig, c.MaxNumBatchedTokens, c.Cache.MaxModelLen)
	}
	return nil
}
