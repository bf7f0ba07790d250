package sched

import (
	"cmp"
	"fmt"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/scheduling/blockhash"
)

type encoderWorker struct {
	enabled   bool
	size      int // embeddings
	budget    int // of a step
	lookahead int // tokens that a draft model reads past the row
	outputs   map[string]int
}

func newEncoderWorker(c *Config) encoderWorker {
	w := encoderWorker{enabled: c.EncoderCacheSize > 0, size: c.EncoderCacheSize, budget: cmp.Or(c.MaxNumEncoderInputTokens, c.EncoderCacheSize), outputs: map[string]int{}}
	if c.Cache.Eagle {
		w.lookahead = 1
	}
	return w
}

// embeds is the size of an item's output; see drawExtras.
func embeds(item blockhash.Item) int {
	if item.Identifier[:3] == "dog" {
		return (item.Length + 1) / 2
	}
	return item.Length
}

func (w *encoderWorker) begin(step *Step, extras map[ID]blockhash.Extras) {
	for _, hash := range step.FreedEncoderOutputs {
		delete(w.outputs, hash)
	}
	encoded := 0
	for _, in := range step.EncoderInputs {
		if step.Rows[in.Row].ID != in.ID {
			panic("an item of another row")
		}
		item := extras[in.ID].Items[in.Item]
		w.outputs[item.Identifier] = embeds(item)
		encoded += embeds(item)
	}
	if encoded > w.budget {
		panic(fmt.Sprintf("%d embeddings in a step, the budget is %d", encoded, w.budget))
	}
	sum := 0
	for _, n := range w.outputs {
		sum += n
	}
	if sum > w.size {
		panic(fmt.Sprintf("%d embeddings, there is size for %d", sum, w.size))
	}
}

func (w *encoderWorker) fail(step *Step, extras map[ID]blockhash.Extras) {
	for _, in := range step.EncoderInputs {
		delete(w.outputs, extras[in.ID].Items[in.Item].Identifier)
	}
}

func (w *encoderWorker) check(row *Row, extras blockhash.Extras) error {
	end := row.NumComputedTokens + row.NumScheduledTokens + w.lookahead
	for _, item := range extras.Items {
		lo, hi := max(row.NumComputedTokens, item.Offset), min(end, item.Offset+item.Length)
		text := item.Identifier[:3] == "dog" && (hi-lo == 1 && (lo-item.Offset)%2 == 1)
		if _, ok := w.outputs[item.Identifier]; w.enabled && lo < hi && !text && !ok {
			return fmt.Errorf("request %#x reads tokens %d to %d of item %s, whose output the worker does not have", uint64(row.ID), lo, hi, item.Identifier)
		}
	}
	return nil
}

func (e *engine) checkAdapters(t *rapid.T, step *Step) {
	names := map[string]bool{}
	for _, row := range step.Rows {
		if name := e.worker.extras[row.ID].LoRA; name != "" {
			names[name] = true
		}
	}
	if limit := e.config.MaxLoRAs; limit > 0 {
		require.LessOrEqual(t, len(names), limit)
	}
}
