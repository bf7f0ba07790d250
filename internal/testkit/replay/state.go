package replay

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// A watcher adds the state of a pool to the results of operations. It adds the fields free, hm and fqh to every result.
// It adds the field ev if there were events. It adds the fields st and dump to a result only if the recorded result of
// the same operation also has them.
type watcher struct {
	pool   pool.View
	config *Config
	events pool.Events
	buf    []byte
}

func (w *watcher) state(op *Op, r result) {
	r["free"] = w.pool.NumFree()
	r["hm"] = w.pool.NumKeys()
	r["fqh"] = w.queueDigest()
	// Only some results have these two.
	if _, asked := op.Result["st"]; asked {
		r["st"] = w.stateDigest()
	}
	if _, asked := op.Result["dump"]; asked {
		r["dump"] = w.dump()
	}
	w.pool.TakeEvents(&w.events)
	if len(w.events.List) > 0 {
		r["ev"] = w.listEvents()
	}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

func (w *watcher) queueDigest() string {
	w.buf = w.buf[:0]
	for id := range w.pool.Queue() {
		w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(id))
	}
	return digest(w.buf)
}

func (w *watcher) stateDigest() string {
	le := binary.LittleEndian
	w.buf = w.buf[:0]
	for id := range w.pool.NumBlocks() {
		w.buf = le.AppendUint32(w.buf, uint32(w.pool.Count(int32(id))))
		key, tokens, ok := w.pool.Primary(int32(id))
		if !ok {
			w.buf = append(w.buf, 0)
			continue
		}
		w.buf = append(append(w.buf, 1), key.Hash[:]...)
		w.buf = binary.BigEndian.AppendUint32(w.buf, key.Group)
		w.buf = le.AppendUint32(w.buf, uint32(tokens))
	}
	return digest(w.buf)
}

type row []any

func (w *watcher) dump() map[string]any {
	refs, hashes, dups := []row{}, []row{}, []row{}
	for id := range w.pool.NumBlocks() {
		if count := w.pool.Count(int32(id)); count != 0 {
			refs = append(refs, row{id, count})
		}
		if key, tokens, ok := w.pool.Primary(int32(id)); ok {
			hashes = append(hashes, row{id, key.Hash.Short(), key.Group, tokens})
		}
	}
	rings := w.pool.Rings()
	slices.SortFunc(rings, func(a, b pool.Ring) int {
		return cmp.Or(cmp.Compare(a.Key.Hash.Short(), b.Key.Hash.Short()), cmp.Compare(a.Key.Group, b.Key.Group))
	})
	for _, r := range rings {
		dups = append(dups, row{r.Key.Hash.Short(), r.Key.Group, r.Blocks})
	}
	usage := 0.0
	if n := w.pool.NumBlocks() - 1; n > 0 { // without the null block
		usage = 1 - float64(w.pool.NumFree())/float64(n)
	}
	return map[string]any{
		"fq": slices.AppendSeq([]int32{}, w.pool.Queue()), "ref": refs, "hash": hashes, "dup": dups, "usage": usage,
	}
}

func (w *watcher) listEvents() []row {
	rows := []row{}
	for i := range w.events.List {
		e := &w.events.List[i]
		switch e.Kind {
		case pool.Cleared:
			rows = append(rows, row{"C"})
		case pool.Removed:
			rows = append(rows, row{"R", e.Group, w.events.Hashes(e)[0].Short()})
		case pool.Stored:
			rows = append(rows, w.storedRow(e))
		}
	}
	return rows
}

func (w *watcher) storedRow(e *pool.Event) row {
	var parent, lora any
	if e.HasParent {
		parent = e.Parent.Short()
	}
	if e.LoRA != "" {
		lora = e.LoRA
	}
	hashes := []string{}
	for _, h := range w.events.Hashes(e) {
		hashes = append(hashes, h.Short())
	}
	return row{"S", e.Group, parent, hashes, e.BlockSize, len(w.events.Tokens(e)), lora, extraColumn(len(hashes), e.Extra)}
}

// extraColumn returns the extra keys of n hashes for a row of an event. If n is 0, it returns nil. If no hash has extra
// keys, it returns "none". Otherwise it returns a list.
func extraColumn(n int, extra [][]blockhash.Key) any {
	if n == 0 {
		return nil
	}
	if extra == nil {
		return "none"
	}
	list := []any{}
	for _, keys := range extra {
		if keys == nil {
			list = append(list, nil)
		} else {
			list = append(list, keyRow(keys))
		}
	}
	return list
}

func keyRow(keys []blockhash.Key) row {
	r := row{}
	for i := range keys {
		switch k := &keys[i]; k.Kind {
		case blockhash.Text:
			r = append(r, k.Text)
		case blockhash.Int:
			r = append(r, k.Int)
		case blockhash.Tuple:
			r = append(r, keyRow(k.Tuple))
		}
	}
	return r
}
