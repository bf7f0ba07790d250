package openai

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	largeBodies = 8                // bodies of the largest size that fit into memory
	firstPiece  = 4 << 10          // bytes of the first piece of a body
	bodyWait    = 30 * time.Second // how long a body may wait for memory, in all
	bodyTime    = 10 * time.Second // how long a large body may take to arrive, plus a second for each bodyRate bytes
	bodyRate    = 256 << 10
	pieceTime   = 5 * time.Second // how long a piece may take to arrive if other bodies wait for memory
)

var (
	// errBodies answers a body that waited too long for memory.
	errBodies = failure(http.StatusServiceUnavailable, "server_error", "overloaded",
		"The server has as many large requests in memory as it may; try again later.")
	errLate = refused(http.StatusRequestTimeout, "", "The body did not arrive in time.")
	errSlow = refused(http.StatusRequestTimeout, "",
		"The body arrived too slowly while other requests waited for memory; try again later.")
)

// A bodyMemory limits the memory of large bodies. It grants memory in pieces of shortBody bytes. A body takes
// a piece before the server reads into it, so a client that stops sending occupies at most one piece more
// than its bytes need. The bodies of one client can take at most half of the memory. If no piece is free,
// bodies wait, and bodies that arrive slowly are refused. One body at a time may exceed the limit, so bodies
// never wait for each other forever.
type bodyMemory struct {
	mu        sync.Mutex
	maxPieces int            // limit of used
	used      int            // pieces in use
	clients   map[string]int // pieces in use by client
	exempt    *share         // the body that may exceed the limit, or nil
	waiting   []*share       // in the order of waiting
	arriving  map[*share]bool
}

// A share describes the memory of one body.
type share struct {
	client      string
	maxTime     time.Duration   // how long the body may take to arrive once it is large
	setDeadline func(time.Time) // sets the read deadline of the connection
	deadline    time.Time
	pieces      int
	lastPiece   time.Time     // when it took the last piece
	granted     chan struct{} // closed when the piece is granted for which the body waits; nil if it does not wait
	waited      time.Duration
	slow        bool // endSlow has stopped the body, because it arrived slowly
}

func newBodyMemory(maxBody int64) *bodyMemory {
	return &bodyMemory{maxPieces: int((largeBodies - 1) * maxBody / shortBody), clients: map[string]int{},
		arriving: map[*share]bool{}}
}

// newShare returns the share of a body that has no pieces yet.
func newShare(w http.ResponseWriter, r *http.Request, maxBody int64) share {
	size := r.ContentLength
	if size < 0 {
		size = maxBody
	}
	control := http.NewResponseController(w)
	return share{client: clientOf(r), maxTime: bodyTime + time.Duration(size)*time.Second/bodyRate,
		setDeadline: func(t time.Time) { _ = control.SetReadDeadline(t) }} // fails for connections without deadlines, as in a test
}

// take takes a piece. It waits if none is free.
func (m *bodyMemory) take(ctx context.Context, h *share) error {
	granted, err := m.ask(h)
	if granted == nil {
		return err
	}
	begin := time.Now()
	end, look := time.NewTimer(bodyWait-h.waited), time.NewTicker(pieceTime/10)
	defer end.Stop()
	defer look.Stop()
	for {
		m.endSlow(h)
		select {
		case <-granted:
			m.mu.Lock()
			defer m.mu.Unlock()
			waited := time.Since(begin)
			h.waited += waited
			h.deadline = h.deadline.Add(waited)
			if !h.slow {
				h.setDeadline(h.deadline)
			}
			return nil
		case <-look.C:
		case <-end.C:
			return errBodies
		case <-ctx.Done():
			return errGone
		}
	}
}

// ask takes a piece. If no piece is free, it returns a channel that is closed when the piece is granted.
func (m *bodyMemory) ask(h *share) (granted <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.deadline.IsZero() {
		h.deadline = time.Now().Add(h.maxTime)
		h.setDeadline(h.deadline)
	}
	switch {
	case h.slow:
		return nil, errSlow
	case m.grant(h):
		return nil, nil
	}
	h.granted = make(chan struct{})
	m.waiting = append(m.waiting, h)
	return h.granted, nil
}

// grant gives h a piece and returns true, or returns false if there is none for h's client.
func (m *bodyMemory) grant(h *share) bool {
	switch {
	case m.used < m.maxPieces && m.clients[h.client] < m.maxPieces/2:
		m.used++
		m.clients[h.client]++
		h.pieces++
	case m.exempt == nil || m.exempt == h:
		m.exempt = h
	default:
		return false
	}
	m.arriving[h] = true
	h.lastPiece = time.Now()
	return true
}

// endSlow stops the body that took its last piece the longest time ago, unless that was less than pieceTime ago. It
// considers only bodies that do not wait for a piece and whose memory the waiting body could use.
func (m *bodyMemory) endSlow(waiting *share) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ownOnly := m.clients[waiting.client] >= m.maxPieces/2 // it can only use memory of its own client
	var slowest *share
	for h := range m.arriving {
		switch {
		case h.granted != nil, h.slow, time.Since(h.lastPiece) < pieceTime:
		case ownOnly && h.client != waiting.client && h != m.exempt:
		case slowest == nil || h.lastPiece.Before(slowest.lastPiece):
			slowest = h
		}
	}
	if slowest != nil {
		slowest.slow = true
		slowest.setDeadline(time.Now())
	}
}

// complete records that a body has arrived or failed. The result slow reports whether endSlow has stopped the body.
func (m *bodyMemory) complete(h *share) (slow bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.arriving, h)
	return h.slow
}

// giveBack frees all pieces of a body.
func (m *bodyMemory) giveBack(h *share) { m.shrink(h, 0) }

// shrink frees the pieces of a body but those for the given number of bytes, which the server still needs. The first
// shortBody bytes need no piece. It grants the free pieces to waiting bodies.
func (m *bodyMemory) shrink(h *share, bytes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.arriving, h)
	m.waiting = slices.DeleteFunc(m.waiting, func(w *share) bool { return w == h })
	freed := h.pieces - min(h.pieces, (bytes-1)/shortBody)
	m.used -= freed
	if m.clients[h.client] -= freed; m.clients[h.client] <= 0 {
		delete(m.clients, h.client)
	}
	h.pieces -= freed
	if m.exempt == h {
		m.exempt = nil
	}
	m.waiting = slices.DeleteFunc(m.waiting, func(w *share) bool {
		if !m.grant(w) {
			return false
		}
		close(w.granted)
		w.granted = nil
		return true
	})
}

// clientOf returns the IPv4 address of a client or its IPv6 network of 64 bits, for the limits of each client.
func clientOf(r *http.Request) string {
	address, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "unknown"
	}
	addr := address.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	network, _ := addr.Prefix(64)
	return network.String()
}
