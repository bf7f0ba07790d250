package responses

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"llmmemory/internal/serving/engine/openai"
)

// Limits of a memory.
const (
	maxMemory = 64 << 20  // bytes of all clients
	maxOfOne  = 16 << 20  // bytes of one client
	maxAge    = time.Hour // of a response
	overhead  = 512       // bytes that are counted for a response, and for each of its items, besides their JSON
)

// A memory keeps the last responses of each client, because some clients send only the ids of earlier items by default
// (Vercel's AI SDK) or the id of the last response. It is bounded in bytes and time, and a restart loses it. Clients do
// not recover from an id that is not found, so the error names the setting with which they send the items themselves.
type memory struct {
	mu       sync.Mutex
	now      func() time.Time
	limit    int              // bytes of all clients
	oneLimit int              // bytes of one client
	clients  map[int]*history // by the index of the client's key
	bytes    int
}

// A history has the responses of one client.
type history struct {
	entries   []*entry // the oldest first
	bytes     int
	responses map[string]*entry
	items     map[string]keptItem // by id
}

// A keptItem is an item and the last entry that has it.
type keptItem struct {
	entry *entry
	json  json.RawMessage
}

// An entry is a response: the items of its input that are not those of the response before it, and its output.
type entry struct {
	id, previous string
	items        []json.RawMessage
	ids          []string // of the items; "" if an item has none
	bytes        int
	begin        time.Time
}

func newMemory() *memory {
	return &memory{now: time.Now, limit: maxMemory, oneLimit: maxOfOne, clients: map[int]*history{}}
}

// keep adds a response, unless it is larger than the limit of one client. If the memory is full, it removes older ones.
func (m *memory) keep(client int, id, previous string, items []json.RawMessage) {
	e := &entry{id: id, previous: previous, items: items, bytes: overhead, begin: m.now()}
	for _, item := range items {
		e.bytes += overhead + len(item)
		e.ids = append(e.ids, idOf(item))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	if e.bytes > m.oneLimit {
		return
	}
	h := m.clients[client]
	if h == nil {
		h = &history{responses: map[string]*entry{}, items: map[string]keptItem{}}
		m.clients[client] = h
	}
	for h.bytes+e.bytes > m.oneLimit {
		m.removeOldest(h)
	}
	for m.bytes+e.bytes > m.limit {
		m.removeOldest(m.largest())
	}
	h.entries, h.responses[id] = append(h.entries, e), e
	for i, item := range items {
		if e.ids[i] != "" {
			h.items[e.ids[i]] = keptItem{e, item}
		}
	}
	h.bytes, m.bytes = h.bytes+e.bytes, m.bytes+e.bytes
}

func idOf(item json.RawMessage) string {
	var fields struct{ ID string }
	_ = json.Unmarshal(item, &fields) // the id of what is not an object is ""
	return fields.ID
}

// largest returns the history with the most bytes.
func (m *memory) largest() (largest *history) {
	for _, h := range m.clients {
		if largest == nil || h.bytes > largest.bytes {
			largest = h
		}
	}
	return largest
}

// expire removes the responses that are too old.
func (m *memory) expire() {
	for client, h := range m.clients {
		for len(h.entries) > 0 && m.now().Sub(h.entries[0].begin) >= maxAge {
			m.removeOldest(h)
		}
		if len(h.entries) == 0 {
			delete(m.clients, client)
		}
	}
}

func (m *memory) removeOldest(h *history) {
	e := h.entries[0]
	h.entries[0] = nil // the array would keep it otherwise
	h.entries = h.entries[1:]
	h.bytes, m.bytes = h.bytes-e.bytes, m.bytes-e.bytes
	delete(h.responses, e.id)
	for _, id := range e.ids {
		if h.items[id].entry == e { // else a later entry has the item, too
			delete(h.items, id)
		}
	}
}

// item returns the item with an id, or nil.
func (m *memory) item(client int, id string) json.RawMessage {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	if h := m.clients[client]; h != nil {
		return h.items[id].json
	}
	return nil
}

// conversation returns the items of a response and of those before it, the oldest first. ok is false if one of them is
// not kept.
func (m *memory) conversation(client int, id string) (items []json.RawMessage, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire()
	h := m.clients[client]
	var entries []*entry
	for id != "" {
		if h == nil || h.responses[id] == nil {
			return nil, false
		}
		e := h.responses[id]
		entries, id = append(entries, e), e.previous
	}
	for _, e := range slices.Backward(entries) {
		items = append(items, e.items...)
	}
	return items, true
}

const notKept = "which this server does not have: it keeps the last responses in memory for an hour, and loses them when it " +
	"restarts. Send the earlier items themselves, as clients do with store false"

// recall sets b.earlier and b.given: the items of the response before and those of the input, in which references are
// replaced by the items. All items together have at most maxBytes bytes.
func (b *body) recall(m *memory, client, maxBytes int) error {
	if b.Previous != "" {
		items, ok := m.conversation(client, b.Previous)
		if !ok {
			return openai.Invalid("previous_response_id", "previous_response_id is %q, "+notKept+".", b.Previous)
		}
		b.earlier = items
	}
	var err error
	if b.given, err = b.inputItems(); err != nil {
		return err
	}
	size := 0
	for _, item := range b.earlier {
		if size += len(item); size > maxBytes {
			return openai.Invalid("previous_response_id", "The response %q and those before it have more than %d bytes, the server's limit "+
				"(--max-body); send a shorter conversation in input.", b.Previous, maxBytes)
		}
	}
	for i, raw := range b.given {
		var it struct{ Type, Role, ID string }
		if json.Unmarshal(raw, &it) == nil && it.ID != "" && (it.Type == "item_reference" || it.Type+it.Role == "") {
			if b.given[i] = m.item(client, it.ID); b.given[i] == nil {
				return openai.Invalid("input", "Item %d of input refers to the item %q, "+notKept+".", i, it.ID)
			}
		}
		if size += len(b.given[i]); size > maxBytes {
			return openai.Invalid("input", "The input, with the items to which it refers and the responses before it, has more than %d "+
				"bytes, the server's limit (--max-body); send fewer items.", maxBytes)
		}
	}
	return nil
}

// stored reports whether the client wants the response to be kept.
func (b *body) stored() bool { return b.Store == nil || *b.Store }

// keptBytes returns the bytes of the input that are held until the response is kept.
func (b *body) keptBytes() (n int) {
	if b.stored() {
		for _, item := range b.given {
			n += len(item)
		}
	}
	return n
}

// keeper returns a function that keeps the response to b with a given id and output. It returns nil if the client wants
// no response to be kept.
func (b *body) keeper(m *memory, client int) func(id string, output []*output) {
	if !b.stored() {
		return nil
	}
	given, previous := b.given, b.Previous
	return func(id string, output []*output) {
		items := append([]json.RawMessage{}, given...)
		for _, o := range output {
			item, err := json.Marshal(o)
			if err != nil {
				return
			}
			items = append(items, item)
		}
		m.keep(client, id, previous, items)
	}
}
