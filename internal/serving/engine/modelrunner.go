package engine

import (
	"errors"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
)

// A ModelRunner computes batches of a model, or of a part of it, and holds the blocks of keys and values (vLLM's
// ModelRunner). One goroutine at a time calls its methods, except ReadBlocks and WriteBlocks.
type ModelRunner interface {
	// CopyBlocks copies blocks of all layers, in the order of pairs. If one pair writes to a block and a
	// later pair reads that block, the later pair reads what was written.
	CopyBlocks(pairs []kvstore.Pair) error

	// Poison fills blocks with NaN. It does nothing without the build tag invariants.
	Poison(blocks []int32)

	// Forward computes the layers of a batch and writes the keys and values of all tokens. It may return
	// before the computation ends.
	//
	// The runner of a Device also begins to compute the first MaxLogits logits of the batch. If the batch
	// has no more logits than that, the caller may start another batch, with CopyBlocks, Poison and Forward,
	// before it calls ComputeLogits for the first batch. Tokens of the second batch may be placeholders for
	// tokens that Sample chooses for the first batch.
	Forward(b *model.Batch) error

	// ComputeLogits returns the logits of tokens b.Logits[start:end], one row after the other. Forward must have begun
	// the batch b, and b must be the oldest batch with logits still to be returned. The result is valid until the next
	// call. Rows for which Sample chooses a token, and whose Choice does not ask for logits, are undefined.
	ComputeLogits(b *model.Batch, start, end int) ([]float32, error)

	// Largest returns the token with the largest logit for each row of the last ComputeLogits, or the token that Sample
	// has chosen. Of equal logits, the first counts. If a row contains a NaN or +Inf or only -Inf, its token is -1.
	// Largest returns nil if the runner does not compute these tokens.
	Largest() []int32

	// ComputeStates returns the hidden states of the tokens b.States after the model's last norm, one row of HiddenSize
	// after the other. ComputeLogits must have been called for the batch b and for no later batch. The result is valid
	// until the next call. Workers other than the first return nil.
	ComputeStates(b *model.Batch) ([]float32, error)

	// ReadBlocks and WriteBlocks copy blocks of all layers to and from memory. They may be called at any time. While
	// ReadBlocks reads a block, nothing else may write to the block. While WriteBlocks writes a block, nothing else may
	// read the block or write to it.
	ReadBlocks(ids []int32, dst [][]byte)
	WriteBlocks(ids []int32, src [][]byte)

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

	// Prepare sends the inputs of a batch to the device while the device computes the previous batch.
	// ForwardPrepared then does what Forward does. Between the two calls the caller may change only
	// b.Tokens, and may compute only the first MaxLogits logits of the previous batch. If Prepare fails,
	// ForwardPrepared returns the error.
	Prepare(b *model.Batch)
	ForwardPrepared(b *model.Batch) error

	// Sample begins to choose tokens from the first logits of the batch that was begun last, one for each choice. It must
	// be called before another batch is begun. Without it, the token of each row is the one with the largest logit.
	Sample(choices []sampling.Choice) error
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

// MaxLogits is the largest number of rows of logits that a CPU computes in one call. It must be at least
// maxSpeculative+1: to check the draft tokens of a sequence, the engine needs a row for each draft token, and one
// more row, in the same call. With 64 rows, the speed is limited by arithmetic, not by reading the matrix.
const MaxLogits = 64

// maxDeviceLogits limits the memory for the logits of a Device.
const maxDeviceLogits = 256

// MaxLogits returns the largest number of rows that one call of a Device's ComputeLogits may return. The result is
// MaxNumSeqs, but at least the limit of a CPU and at most maxDeviceLogits.
func (c *RunnerConfig) MaxLogits() int { return min(max(MaxLogits, c.MaxNumSeqs), maxDeviceLogits) }

// maxLogits returns the largest number of rows that one call of ComputeLogits may return, on the Device or on
// the CPU.
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
		Store: store, Places: c.places, MaxModelLen: c.MaxModelLen, AskedModelLen: c.askedModelLen, MaxNumSeqs: c.MaxNumSeqs,
		MaxNumBatchedTokens: c.MaxNumBatchedTokens,
	})
}

// A cpuRunner is the ModelRunner of a part of a model that a CPU computes.
type cpuRunner struct {
	*model.Runner
	*kvstore.Store
}

// ReadBlocks implements ModelRunner.
func (r cpuRunner) ReadBlocks(ids []int32, dst [][]byte) {
	for i, id := range ids {
		r.ReadBlock(id, dst[i])
	}
}

// WriteBlocks implements ModelRunner.
func (r cpuRunner) WriteBlocks(ids []int32, src [][]byte) {
	for i, id := range ids {
		r.WriteBlock(id, src[i])
	}
}

// newCPURunner makes the runner of a part of the model, and maps memory for its blocks. The shape of a block follows
// from p.Model.
func newCPURunner(p Peer, store kvstore.Config, group model.Group, c *Config) (ModelRunner, error) {
	if p.Model.Mixed == nil {
		store.Shape = p.Model.KVShape(c.BlockSize, c.KVCacheDType)
	}
	blocks, err := kvstore.New(store, p.Pool)
	if err != nil {
		return nil, err
	}
	runner, err := model.NewRunner(p.Model, blocks, p.Pool, group, c.places...)
	if err != nil {
		return nil, errors.Join(err, blocks.Close())
	}
	runner.Limit(c.askedModelLen)
	return cpuRunner{runner, blocks}, nil
}
