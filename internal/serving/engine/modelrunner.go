package engine

import (
	"errors"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
)

// A ModelRunner computes batches of a model, or of a part of it, and holds the blocks of keys and values (vLLM's
// ModelRunner). One goroutine at a time calls its methods, except ReadBlock and WriteBlock.
type ModelRunner interface {
	// CopyBlocks copies blocks of all layers. A later pair reads what an earlier one has written.
	CopyBlocks(pairs []kvstore.Pair) error

	// Poison fills blocks with NaN. It does nothing without the build tag invariants.
	Poison(blocks []int32)

	// Forward computes the layers of a batch and writes the keys and values of all tokens. It may return before the
	// computation ends.
	//
	// A runner of a Device also begins to compute the first MaxLogits logits. If there are no more, CopyBlocks, Poison and
	// Forward may be called for one more batch before ComputeLogits is called for this one. That batch may have
	// placeholders for the tokens that this one samples.
	Forward(b *model.Batch) error

	// ComputeLogits returns the logits of tokens b.Logits[from:to], one row after the other. b is the batch of the oldest
	// Forward whose logits were not all returned. They are valid until the next call. Rows that b.LargestOnly marks are
	// undefined if Largest returns tokens.
	ComputeLogits(b *model.Batch, from, to int) ([]float32, error)

	// Largest returns, for each row of the last ComputeLogits, the token with the largest logit, the first of equal
	// ones. It is -1 if the row has a NaN or +Inf or has only -Inf. Largest returns nil if the tokens are unknown.
	Largest() []int32

	// ReadBlock and WriteBlock copy a block of all layers to and from memory. They may be called at any time, as long as
	// nothing else writes to the block, or reads it during WriteBlock.
	ReadBlock(id int32, to []byte)
	WriteBlock(id int32, from []byte)

	// Close frees the memory of the blocks.
	Close() error
}

// A Device computes the steps of a whole model elsewhere than on the CPU.
type Device interface {
	// KVShape returns the shape of the keys and values of a layer.
	KVShape(blockSize int) (attention.Shape, error)

	NewRunner(c RunnerConfig) (DeviceRunner, error)
}

// A DeviceRunner is the ModelRunner of a Device.
type DeviceRunner interface {
	ModelRunner

	// Prepare sends the inputs of a batch while the one before is computed. ForwardPrepared then does what Forward does.
	// Only b.Tokens may change between the two calls, and no logits after the first MaxLogits may be computed. If Prepare
	// fails, ForwardPrepared returns the error.
	Prepare(b *model.Batch)
	ForwardPrepared(b *model.Batch) error
}

// A RunnerConfig describes the batches of a ModelRunner.
type RunnerConfig struct {
	Store               kvstore.Config
	Places              []model.Place // of each layer
	MaxModelLen         int
	AskedModelLen       int // MaxModelLen before it was limited by the memory
	MaxNumSeqs          int
	MaxNumBatchedTokens int
}

// MaxLogits is the most rows of logits that a CPU computes at a time. A draw needs at most maxSpeculative+1. With 64
// rows, arithmetic and not reading the matrix limits how fast logits are computed.
const MaxLogits = 64

// mostLogits limits the memory for the logits of a Device.
const mostLogits = 256

// MaxLogits returns the most rows of a call of ComputeLogits: those of all sequences, up to a limit.
func (c *RunnerConfig) MaxLogits() int { return min(max(MaxLogits, c.MaxNumSeqs), mostLogits) }

// maxLogits returns the most rows of a call of ComputeLogits.
func (c *Config) maxLogits() int {
	if c.Device == nil {
		return MaxLogits
	}
	return (&RunnerConfig{MaxNumSeqs: c.MaxNumSeqs}).MaxLogits()
}

// newRunner makes the runner of a worker.
func newRunner(p Peer, store kvstore.Config, group model.Group, c *Config) (ModelRunner, error) {
	if c.Device == nil {
		return newCPURunner(p, store, group, c)
	}
	return c.Device.NewRunner(RunnerConfig{
		Store: store, Places: c.places, MaxModelLen: c.MaxModelLen, AskedModelLen: c.asked, MaxNumSeqs: c.MaxNumSeqs,
		MaxNumBatchedTokens: c.MaxNumBatchedTokens,
	})
}

// A cpuRunner is the ModelRunner of a part of a model that a CPU computes.
type cpuRunner struct {
	*model.Runner
	*kvstore.Store
}

// newCPURunner maps the memory of the blocks, whose shape is that of p's model.
func newCPURunner(p Peer, store kvstore.Config, group model.Group, c *Config) (ModelRunner, error) {
	store.Shape = p.Model.KVShape(c.BlockSize, c.KVCacheDType)
	blocks, err := kvstore.New(store, p.Pool)
	if err != nil {
		return nil, err
	}
	runner, err := model.NewRunner(p.Model, blocks, p.Pool, group, c.places...)
	if err != nil {
		return nil, errors.Join(err, blocks.Close())
	}
	runner.Limit(c.asked)
	return cpuRunner{runner, blocks}, nil
}
