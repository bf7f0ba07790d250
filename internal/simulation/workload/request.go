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

// hashTokens is the number of tokens that one hash of a Request covers, as in Mooncake's traces.
const hashTokens = 512

// A Request arrives at a server.
type Request struct {
	Arrival        float64 // s since the start
	Prompt, Output int     // tokens, at least 1 each

	// Shared is the number of tokens at the start of the prompt that all requests of the workload share. It is ignored
	// if the request has Hashes.
	Shared int

	// Hashes are Mooncake's hash_ids, one for each hashTokens tokens of the prompt; the last may cover fewer.
	// Hashes may be nil. They are valid until the source's next request is read.
	Hashes []int64

	// Session is the number of the conversation to which the request belongs, or 0. The prompt begins with
	// the prompt and the answer of the conversation's previous request.
	Session int64
}

// A Source returns requests in the order of arrival. Next sets all fields of the request. It returns io.EOF
// after the last request. After an error it returns the same error again.
type Source interface {
	Next(*Request) error
}

// Sessions is a Source of the first requests of conversations. Follow returns the later requests, each of
// which arrives after the previous answer.
type Sessions interface {
	Source

	// Follow sets r to the next request of a session, and reports whether there is one. answered is the time,
	// in seconds, at which the session's previous request was answered. The hashes of r stay valid.
	Follow(session int64, answered float64, r *Request) bool
}

// Lengths draws the lengths of a prompt and an output in tokens, at least 1 each. All random numbers come
// from r, and Draw keeps no state.
type Lengths interface {
	Draw(r *rand.Rand) (prompt, output int)
}

// SharedBy returns the number of tokens that all prompts of l begin with.
func SharedBy(l Lengths) int {
	p, _ := l.(prefixed)
	return p.tokens
}
