package responses

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
)

// check requires that the memory's numbers and indexes are those of its entries.
func (m *memory) check(t *testing.T) {
	all := 0
	for _, h := range m.clients {
		bytes, ids := 0, map[string]bool{}
		for _, e := range h.entries {
			bytes += e.bytes
			require.Same(t, e, h.responses[e.id])
			for i, item := range e.items {
				id := idOf(item)
				require.Equal(t, id, e.ids[i])
				if id != "" {
					ids[id] = true
					require.Contains(t, h.items, id)
				}
			}
		}
		require.Len(t, h.responses, len(h.entries))
		require.Len(t, h.items, len(ids))
		require.Equal(t, bytes, h.bytes)
		require.LessOrEqual(t, h.bytes, m.oneLimit)
		all += bytes
	}
	require.Equal(t, all, m.bytes)
	require.LessOrEqual(t, m.bytes, m.limit)
}

func itemOf(id string, size int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"id": %q, "text": %q}`, id, strings.Repeat("x", size)))
}

func TestTheLastResponsesAreKeptForEachClient(t *testing.T) {
	now := time.Unix(0, 0)
	m := newMemory()
	m.now = func() time.Time { return now }
	defer func() { m.check(t) }()
	m.keep(0, "r1", "", []json.RawMessage{json.RawMessage(`{"role": "user"}`), itemOf("a", 1)})
	m.keep(0, "r2", "r1", []json.RawMessage{itemOf("b", 1)})
	m.keep(1, "r3", "r1", []json.RawMessage{itemOf("c", 1)})
	m.check(t)
	items, ok := m.conversation(0, "r2")
	require.True(t, ok)
	require.Len(t, items, 3)
	require.Equal(t, itemOf("b", 1), items[2])
	require.Equal(t, itemOf("a", 1), m.item(0, "a"))
	require.Nil(t, m.item(1, "a"), "another client's")
	_, ok = m.conversation(1, "r3")
	require.False(t, ok, "the response before is another client's")

	now = now.Add(maxAge / 2)
	m.keep(0, "r4", "", []json.RawMessage{m.item(0, "a")})
	now = now.Add(maxAge / 2)
	require.Nil(t, m.item(0, "b"), "it is too old")
	require.NotNil(t, m.item(0, "a"), "a later response has it")
	m.check(t)
	require.NotContains(t, m.clients, 1)
	_, ok = m.conversation(0, "r2")
	require.False(t, ok)
}

// Ensure that the memory is bounded for each client and for all clients together.
func TestTheMemoryIsBounded(t *testing.T) {
	m := newMemory()
	m.limit, m.oneLimit = m.limit>>10, m.oneLimit>>10
	for client := range 6 {
		for i := range 20 {
			m.keep(client, fmt.Sprint(i), "", []json.RawMessage{itemOf(fmt.Sprint("i", i), 1<<10)})
		}
		m.check(t)
		require.NotNil(t, m.item(client, "i19"))
		require.Nil(t, m.item(client, "i0"))
	}
	require.Greater(t, m.bytes, m.limit-4<<10)
	m.keep(7, "large", "", []json.RawMessage{itemOf("large", m.oneLimit)})
	require.Nil(t, m.item(7, "large"))
	for i := range 1000 {
		m.keep(8, fmt.Sprint(i), "", nil)
	}
	m.check(t)
}

// Ensure that the items to which a request refers are limited as those of a body are.
func TestReferencesAreLimitedAsABodyIs(t *testing.T) {
	m := newMemory()
	m.keep(0, "r", "", []json.RawMessage{itemOf("a", 1000)})
	b := body{Input: json.RawMessage("[" + strings.TrimSuffix(strings.Repeat(`{"id": "a"},`, 20), ",") + "]")}
	require.ErrorContains(t, b.recall(m, 0, 10000), "has more than 10000 bytes, the server's limit (--max-body)")
	require.NoError(t, b.recall(m, 0, 30000))
	require.Len(t, b.given, 20)
	require.ErrorContains(t, b.recall(m, 1, 30000), `Item 0 of input refers to the item "a", which this server does not have`)
	require.ErrorContains(t, b.recall(m, 1, 30000), "store false")
}

// Ensure that a conversation is limited as a body is, from its first response on, and that the error names the field.
func TestAConversationIsLimitedAsABodyIs(t *testing.T) {
	m := newMemory()
	m.keep(0, "r1", "", []json.RawMessage{itemOf("a", 1000)})
	m.keep(0, "r2", "r1", []json.RawMessage{itemOf("b", 1000)})
	size := 2 * len(itemOf("a", 1000))
	recall := func(input string, limit int) (body, error) {
		b := body{Previous: "r2", Input: json.RawMessage(input)}
		return b, b.recall(m, 0, limit)
	}
	_, err := recall(`[{"id": "b"}]`, size-1)
	require.ErrorContains(t, err, `The response "r2" and those before it have more than`)
	_, err = recall(`[{"id": "b"}]`, size)
	require.ErrorContains(t, err, "The input, with the items to which it refers and the responses before it, has more than")
	b, err := recall(`[{"id": "b"}]`, size+size/2)
	require.NoError(t, err)
	require.Len(t, b.earlier, 2)
}

// Ensure that nothing keeps a response that was removed.
func TestARemovedResponseIsFreed(t *testing.T) {
	m := newMemory()
	m.oneLimit = 12 * overhead
	removed := func() weak.Pointer[entry] {
		for i := range 5 { // the array of entries has room for more
			m.keep(0, fmt.Sprint(i), "", []json.RawMessage{itemOf("", 1)})
		}
		return weak.Make(m.clients[0].entries[0])
	}()
	m.keep(0, "last", "", []json.RawMessage{itemOf("", 3*overhead)})
	require.NotContains(t, m.clients[0].responses, "0")
	runtime.GC()
	require.Nil(t, removed.Value())
	m.check(t)
}
