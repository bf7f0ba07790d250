package workload

import (
	"errors"
	"math/rand/v2"
)

var (
	// ErrUnknown is wrapped when no workload has the name.
	ErrUnknown = errors.New("unknown workload")

	// ErrSetting is wrapped when a workload cannot be made as asked.
	ErrSetting = errors.New("bad workload")

	// ErrTrace is wrapped by every complaint about what a trace contains.
	ErrTrace = errors.New("bad trace")
)

// hashTokens is how many tokens one of a Request's hashes stands for, as in
// Mooncake's traces.
const hashTokens = 512

// A Request arrives at a server.
type Request struct {
	Arrival        float64 // s since the start
	Prompt, Output int     // tokens, at least 1 each

	// Shared is how many tokens at the start of the prompt all requests of the
	// workload have in common; 0: none. Hashes, where there are any, say more
	// and stand instead of it.
	Shared int

	// Hashes are Mooncake's hash_ids: one for each hashTokens tokens of the
	// prompt, the last may be partial. Nil: prompts have nothing in common
	// but Shared. Valid until the next call of Next.
	Hashes []int64

	// Session is above 0 for a turn of a conversation: the number of that. A turn's
	// prompt begins with the prompt and the answer of the turn before.
	Session int64
}

// A Source yields requests in the order of arrival. Next fills all of the
// request; io.EOF is the end. After an error it gives the same error again.
type Source interface {
	Next(*Request) error
}

// Sessions are a Source of the first turns of conversations. The turns after them
// depend on when they are answered.
type Sessions interface {
	Source

	// Follow fills r with the next turn of a session, whose last one was answered at a
	// time in seconds, and reports whether there is one. It keeps r.Hashes unchanged.
	Follow(session int64, answered float64, r *Request) bool
}

// Lengths are pairs of prompt and output lengths in tokens, at least 1 each,
// drawn at random. Draw keeps no state but that of r.
type Lengths interface {
	Draw(r *rand.Rand) (prompt, output int)
}

// A sharer is Lengths with a shared prefix.
type sharer interface{ shared() int }

func sharedBy(l Lengths) int {
	if s, ok := l.(sharer); ok {
		return s.shared()
	}
	return 0
}
