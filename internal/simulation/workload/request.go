package workload

import (
	"errors"
	"math/rand/v2"
)

var (
	// ErrUnknown is wrapped when no workload has the name.
	ErrUnknown = errors.New("unknown workload")

	// ErrSetting is wrapped when a setting of a workload is out of range.
	ErrSetting = errors.New("bad workload")

	// ErrTrace is wrapped by errors about the contents of a trace.
	ErrTrace = errors.New("bad trace")
)

// hashTokens is the number of tokens for which a Request has a hash, as in Mooncake's traces.
const hashTokens = 512

// A Request arrives at a server.
type Request struct {
	Arrival        float64 // s since the start
	Prompt, Output int     // tokens, at least 1 each

	// Shared is the number of tokens at the start of the prompt that all requests of the workload share. It is ignored
	// if the request has Hashes.
	Shared int

	// Hashes are Mooncake's hash_ids: one for each hashTokens tokens of the prompt. The last hash may cover fewer
	// tokens. Hashes may be nil, and are valid until the next call of Next.
	Hashes []int64

	// Session is the number of the conversation to which the request belongs, or 0. The prompt of a turn begins with
	// the prompt and the answer of the turn before.
	Session int64
}

// A Source returns requests in the order of arrival. Next sets all fields of the request. At the end it returns
// io.EOF. After an error it returns the same error again.
type Source interface {
	Next(*Request) error
}

// A Sessions is a Source of the first turns of conversations. A later turn arrives when the answer before it is
// known.
type Sessions interface {
	Source

	// Follow sets r to the next turn of a session, and reports whether there is one. answered is the time, in
	// seconds, at which the previous turn was answered. Follow does not change r.Hashes.
	Follow(session int64, answered float64, r *Request) bool
}

// Lengths draws random lengths of prompts and outputs in tokens, at least 1 each. Draw takes all its random numbers
// from r and has no other state.
type Lengths interface {
	Draw(r *rand.Rand) (prompt, output int)
}

// A sharer is a Lengths whose prompts share a prefix.
type sharer interface{ shared() int }

func sharedBy(l Lengths) int {
	if s, ok := l.(sharer); ok {
		return s.shared()
	}
	return 0
}
