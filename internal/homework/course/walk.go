package course

// A walk goes along a list until it meets an id or the end: the head, or NULL.
type walk struct {
	engine *Engine
	id     int32
	prev   *Node // the node before next; nil at the first step
	next   *Node // where the walk stands, not yet looked at
	steps  int   // nodes passed
	found  bool  // next has the id
}

// plain follows the links.
func (w *walk) plain() {
	for w.next != &w.engine.Active && w.next != nil {
		if idOf(w.next) == w.id {
			w.found = true
			return
		}
		w.prev, w.next = w.next, w.next.Next
		w.steps++
	}
}

// guided follows the links, too, but each node is read at the address that the
// order has for it, once the link before has been seen to lead there. So the
// processor need not wait for one node to know the address of the next. Where
// the order is wrong, it is corrected.
func (w *walk) guided(o *order) {
	head, id := &w.engine.Active, w.id
	prev, next := w.prev, w.next
	from, to := 0, 0 // nodes[from:] is the guess, nodes[:to] what was met
	for {
		start := from
		for nodes := o.nodes; from < len(nodes); from++ {
			n := nodes[from]
			if n != next || idOf(n) == id {
				break
			}
			if from != to {
				nodes[to] = n
			}
			to++
			prev, next = n, n.Next
		}
		w.steps += from - start
		if next == head || next == nil {
			o.nodes = o.nodes[:to]
			break
		}
		if idOf(next) == id {
			w.found = true
			o.close(to, from)
			break
		}
		if skip := o.ahead(from, next); skip > 0 {
			from += skip
			continue
		}
		if from = o.met(to, from, next); from < 0 {
			// No memory: the rest is not remembered.
			o.nodes = o.nodes[:to]
			w.prev, w.next = prev, next
			w.plain()
			return
		}
		to++
		prev, next = next, next.Next
		w.steps++
	}
	w.prev, w.next = prev, next
}
