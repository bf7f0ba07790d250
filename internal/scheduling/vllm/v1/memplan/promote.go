package memplan

import (
	"cmp"
	"fmt"
	"slices"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
)

// promote gives layers with windows and chunks blocks for all tokens, as full attention
// has, so that all layers can share one block table. What the layers compute does not
// change (vLLM's _promote_local_kv_cache_specs).
func promote(layers []Layer) ([]Layer, error) {
	if oneType(layers) {
		return layers, nil
	}
	blockSize, full := 0, false // blockSize is that of all full attention, or 0 if it differs
	for i := range layers {
		switch l := &layers[i]; {
		case l.Kind != kvcache.Full:
		case !full:
			full, blockSize = true, l.BlockSize
		case l.BlockSize != blockSize:
			blockSize = 0
		}
	}
	layers = slices.Clone(layers)
	for i := range layers {
		l := &layers[i]
		if full && (l.Kind == kvcache.SlidingWindow || l.Kind == kvcache.ChunkedLocal) {
			l.Kind, l.Window, l.Retained, l.Chunk = kvcache.Full, 0, 0, 0
			l.resize(cmp.Or(blockSize, l.BlockSize))
		}
	}
	if !oneType(layers) {
		return nil, fmt.Errorf("%w: windows and chunks as full attention do not make all layers need the same blocks", ErrLayers)
	}
	return layers, nil
}

// resize gives a layer blocks of n tokens. A padded page grows only if the content does not fit.
func (l *Layer) resize(n int) {
	padded := l.Page > 0 && l.content() > 0 && l.content() <= l.Page
	page := l.Page * n / l.BlockSize
	l.BlockSize = n
	switch {
	case padded:
		l.Page = max(l.Page, l.content())
	case l.Page > 0:
		l.Page = max(page, 1)
	}
}

// canPromote reports whether layers whose pages cannot be made equally large are promoted
// even without FullAllocation: full attention of keys only beside windows of keys and
// values, as a draft model has (vLLM's _try_get_full_allocation_fallback_groups).
func canPromote(layers []Layer) bool {
	keys, window := false, false
	for i := range layers {
		switch l := &layers[i]; {
		case l.Hidden, l.Kind == kvcache.ChunkedLocal, l.Kind == kvcache.SlidingWindow && l.KeysOnly:
			return false
		case l.Kind == kvcache.SlidingWindow:
			window = true
		case l.Kind == kvcache.Full && l.KeysOnly:
			keys = true
		}
	}
	return keys && window
}
