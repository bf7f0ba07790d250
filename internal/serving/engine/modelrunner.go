package engine

import (
	"errors"

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
	Forward(b *model.Batch) error

	// ComputeLogits returns the logits of tokens b.Logits[from:to] of the batch of the last Forward, one row after the
	// other. They are valid until the next call.
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
