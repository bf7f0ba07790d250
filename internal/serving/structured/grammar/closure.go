package grammar

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// A frame is a call of a rule on the stack. At the end of the rule, the grammar continues at one of the kernels in the
// list returns. Frames are made, and their lists are filled, while a closure is computed. After that, a frame does not
// change.
type frame struct {
	id      uint64 // equal frames have equal ids
	rule    Node
	returns []kernel
	ended   bool // the rule can end where it begins; used while the closure is computed
	fresh   bool // made by the closure that is being computed
}

// idOf returns the id of a frame of a rule that the key describes.
func idOf(key []byte, rule Node) uint64 {
	sum := sha256.Sum256(binary.LittleEndian.AppendUint32(key, uint32(rule)))
	return binary.LittleEndian.Uint64(sum[:])
}

// kernel is a position in a grammar: a node of a rule, and the call in which the rule is being read.
type kernel struct {
	node  Node
	frame *frame
}

func compareKernels(a, b kernel) int {
	return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.frame.id, b.frame.id))
}

// appendKernels appends an encoding of the kernels to a key for a map.
func appendKernels(key []byte, kernels []kernel) []byte {
	for _, k := range kernels {
		key = binary.LittleEndian.AppendUint32(key, uint32(k.node))
		key = binary.LittleEndian.AppendUint64(key, k.frame.id)
	}
	return key
}

// closed is the closure of some kernels. It has an item for each lexeme that can begin at one of these kernels, or at a
// kernel that can be reached from them without reading a byte. The field accept is true if the text may end there.
type closed struct {
	items  []Item
	accept bool
	work   int // units and bytes that the closure was charged
	bytes  int
	turn   int // Runner.turn when the closure was charged the last time
}

// chargeClosed charges a closure, unless it was charged since the last call of Charge. It reports whether the meter
// allows it.
func (r *Runner) chargeClosed(c *closed) bool {
	if c.turn == r.turn {
		return true
	}
	c.turn = r.turn
	return r.meter.Spend(c.work) == nil && r.meter.Keep(c.bytes) == nil
}

// closing is the computation of one closure.
type closing struct {
	work   []kernel // to be visited
	seen   map[position]bool
	key    []byte          // of the closure
	frames map[Node]*frame // the fresh frame of each rule
	fresh  []*frame
	places map[place]bool // the returns of fresh frames
	closed *closed
}

// position identifies a kernel by the id of its frame: there may be several equal frames, as Forget does not reach those
// in configs that a caller holds.
type position struct {
	node  Node
	frame uint64
}

func (k kernel) position() position { return position{k.node, k.frame.id} }

// place is an element of frame.returns.
type place struct {
	frame *frame
	ret   position
}

// close returns the closure of r.kernels. It sorts r.kernels.
func (r *Runner) close() *closed {
	if len(r.kernels) > 1 {
		slices.SortFunc(r.kernels, compareKernels)
		r.kernels = slices.CompactFunc(r.kernels, func(a, b kernel) bool { return compareKernels(a, b) == 0 })
	}
	r.key = appendKernels(r.key[:0], r.kernels)
	if c, ok := r.closures[string(r.key)]; ok {
		if !r.chargeClosed(c) {
			return &closed{}
		}
		return c
	}
	stored := string(r.key)
	work, bytes := r.meter.Spent(), r.meter.Kept()
	w := &r.closing
	w.work, w.closed, w.fresh, w.key = w.work[:0], &closed{turn: r.turn}, w.fresh[:0], append(w.key[:0], r.key...)
	if w.seen == nil || len(w.seen) > keptKernels {
		w.seen, w.frames, w.places = map[position]bool{}, map[Node]*frame{}, map[place]bool{}
	}
	clear(w.seen)
	clear(w.frames)
	clear(w.places)
	for _, k := range r.kernels {
		w.push(k)
	}
	for len(w.work) > 0 {
		k := w.work[len(w.work)-1]
		w.work = w.work[:len(w.work)-1]
		if r.visit(w, k); r.meter.Err() != nil {
			return &closed{}
		}
	}
	if r.share(w); r.meter.Err() != nil {
		return &closed{}
	}
	w.closed.work, w.closed.bytes = r.meter.Spent()-work, r.meter.Kept()-bytes
	r.closures[stored] = w.closed
	return w.closed
}

// keptKernels limits the size of maps that the next closure uses again. To clear a map takes time in its largest size.
const keptKernels = 1000

func (w *closing) push(k kernel) {
	if p := k.position(); !w.seen[p] {
		w.seen[p] = true
		w.work = append(w.work, k)
	}
}

const (
	kernelBytes = 160 // about what a kernel that was seen takes
	itemBytes   = 64
	frameBytes  = 150 // about what a frame takes besides its returns
)

// visit adds an item to the closure for each edge of the kernel's node that reads a lexeme. At the end of the rule at
// node 0, it notes that the text may end. It also pushes onto w.work the kernels that can be reached in one step
// without reading a character, so that close visits them too:
//
//   - the kernel after an edge that reads nothing
//   - the kernel after an edge whose lexeme may be empty
//   - at the end of a rule, the kernels to which the rule returns
//   - at a call, the first kernel of the called rule
func (r *Runner) visit(w *closing, k kernel) {
	node := &r.grammar.nodes[k.node]
	if r.meter.Spend(1+len(node.edges)) != nil || !r.keep(kernelBytes+itemBytes*len(node.edges)) {
		return
	}
	if node.final {
		if k.frame == r.root {
			w.closed.accept = true
		}
		k.frame.ended = k.frame.ended || k.frame.fresh
		if r.meter.Spend(len(k.frame.returns)) != nil {
			return
		}
		for _, ret := range k.frame.returns {
			w.push(ret)
		}
	}
	for _, e := range node.edges {
		edge := &r.grammar.edges[e]
		switch {
		case edge.terminal != nil:
			l := edge.terminal.get()
			w.closed.items = append(w.closed.items, Item{l, 0, e, k.frame})
			if tag := l.Tag(0); tag >= 0 {
				w.push(kernel{edge.targets[tag], k.frame})
			}
		case edge.call == noCall:
			w.push(kernel{edge.targets[0], k.frame})
		default:
			r.call(w, edge, k.frame)
		}
	}
}

// call adds a call of a rule to the closure. Usually the called rule returns to the node after the call. If the calling
// rule always ends at that node, the called rule returns directly to the places to which the calling rule returns. So a
// rule that calls itself at its end, such as a rule for a list, does not make the stack grow.
//
// The called rule cannot return directly in two cases. If the frame of the calling rule is fresh, not all of
// its places are known yet. If this frame is the root, it has no places to return to.
func (r *Runner) call(w *closing, e *edge, caller *frame) {
	f := w.frames[e.call]
	if f == nil {
		if !r.keep(frameBytes) {
			return
		}
		f = &frame{id: idOf(w.key, e.call), rule: e.call, fresh: true}
		w.frames[e.call] = f
		w.fresh = append(w.fresh, f)
		w.push(kernel{e.call, f})
	}
	ret := kernel{e.targets[0], caller}
	if node := &r.grammar.nodes[ret.node]; node.final && len(node.edges) == 0 && !caller.fresh && caller != r.root {
		if r.meter.Spend(len(caller.returns)) != nil || !r.keep(kernelBytes*len(caller.returns)) {
			return
		}
		for _, callerRet := range caller.returns {
			w.returnTo(f, callerRet)
		}
		return
	}
	w.returnTo(f, ret)
}

func (w *closing) returnTo(f *frame, ret kernel) {
	if p := (place{f, ret.position()}); !w.places[p] {
		w.places[p] = true
		f.returns = append(f.returns, ret)
		if f.ended {
			w.push(ret)
		}
	}
}

// share replaces new frames of the closure by equal frames of earlier closures. Equal states then have equal configs.
// A caller comes before the frames that it calls. A frame whose callers, or their callers, include the frame itself is
// not replaced, nor are the frames that it calls.
func (r *Runner) share(w *closing) {
	if len(w.fresh) == 0 {
		return
	}
	shared := map[*frame]*frame{}
	waiting := map[*frame]int{} // the fresh callers of each frame that are not shared yet
	called := map[*frame][]*frame{}
	var ready []*frame
	for _, f := range w.fresh {
		if r.meter.Spend(1+len(f.returns)) != nil {
			return
		}
		for _, ret := range f.returns {
			if ret.frame.fresh {
				waiting[f]++
				called[ret.frame] = append(called[ret.frame], f)
			}
		}
		if waiting[f] == 0 {
			ready = append(ready, f)
		}
	}
	for i := 0; i < len(ready); i++ {
		f := ready[i]
		if !r.keep(frameBytes + 2*kernelBytes*len(f.returns)) {
			return
		}
		shared[f] = r.shareFrame(f, shared)
		for _, next := range called[f] {
			if waiting[next]--; waiting[next] == 0 {
				ready = append(ready, next)
			}
		}
	}
	for i, item := range w.closed.items {
		if s, ok := shared[item.frame]; ok {
			w.closed.items[i].frame = s
		}
	}
	for _, f := range w.fresh { // those that are left
		for i, ret := range f.returns {
			if s, ok := shared[ret.frame]; ok {
				f.returns[i].frame = s
			}
		}
	}
	for _, f := range w.fresh {
		f.fresh = false
	}
}

// shareFrame returns the frame of the runner's cache that equals f. The fresh callers of f are in the map shared. If the
// cache has no equal frame, shareFrame adds one.
func (r *Runner) shareFrame(f *frame, shared map[*frame]*frame) *frame {
	returns := make([]kernel, len(f.returns))
	for i, ret := range f.returns {
		if s, ok := shared[ret.frame]; ok {
			ret.frame = s
		}
		returns[i] = ret
	}
	slices.SortFunc(returns, compareKernels)
	key := appendKernels(binary.LittleEndian.AppendUint32(nil, uint32(f.rule)), returns)
	s, ok := r.frames[string(key)]
	if !ok {
		s = &frame{id: idOf(key, f.rule), rule: f.rule, returns: returns}
		r.frames[string(key)] = s
	}
	return s
}
