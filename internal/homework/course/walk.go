package course

// A walk searches a list until it finds an id, or until the end, which is the head or NULL.
type walk struct {
	engine *Engine
	id     int32
	prev   *Node // the node before next; nil at the first step
	next   *Node // the next node to read
	steps  int   // nodes read
	found  bool  // next has the id
}

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

// guided makes the same search as plain. It predicts the address of each node from the order and compares the
// prediction with the link. So the processor can load a node before it has read the link to it. guided corrects the
// order where it is wrong.
func (w *walk) guided(o *order) {
	head, id := &w.engine.Active, w.id
	prev, next := w.prev, w.next
	guess, index := 0, 0 // nodes[:index] were met, nodes[guess:] is the guess for the rest
	for {
		start := guess
		for nodes := o.nodes; guess < len(nodes); guess++ {
			n := nodes[guess]
			if n != next || idOf(n) == id {
				break
			}
			if guess != index {
				nodes[index] = n
			}
			index++
			prev, next = n, n.Next
		}
		w.steps += guess - start
		if next == head || next == nil {
			o.nodes = o.nodes[:index]
			break
		}
		if idOf(next) == id {
			w.found = true
			o.close(index, guess)
			break
		}
		if skip := o.distance(guess, next); skip > 0 {
			guess += skip
			continue
		}
		if guess = o.record(index, guess, next); guess < 0 {
			// Without memory the order ends here.
			o.nodes = o.nodes[:index]
			w.prev, w.next = prev, next
			w.plain()
			return
		}
		index++
		prev, next = next, next.Next
		w.steps++
	}
	w.prev, w.next = prev, next
}
