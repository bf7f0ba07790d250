package structured

import (
	"fmt"
	"hash/maphash"
	"math"
	"sync/atomic"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/grammar"
)

// An account limits the work of the masks and tokens of an answer. A matcher shares it with its clones and forks.
//
// What it charges is what the answer would cost if its constraint and vocabulary had cached nothing before it. So no
// answer depends on what other answers left in these caches. The work that is done can be less, because it was done for
// another answer, or more, because another answer displaced a mask: that was charged once then.
type account struct {
	perToken int64        // units that it allows for each token besides answerWork
	spent    atomic.Int64 // units of work
	tokens   atomic.Int64 // accepted, less those taken back

	// What was charged, as far as a constraint that follows only this answer has it cached. The constraint's mutex
	// guards these fields.
	masks  map[uint64]bool // by hashes of the keys of configs
	states map[stateKey]bool
	bytes  int // of the masks
}

const (
	answerWork = 10_000_000 // units of work that an account allows, also the limit of one mask or token
	tokenWork  = 20_000     // units that it allows for each token besides, with one for each token of the vocabulary
	tokenBytes = 64 << 20   // that one mask or token may allocate
)

// newAccount returns an account that has spent nothing. A form such as a string with maxLength has another mask after each
// token, and a mask costs up to about half a unit for each token of the vocabulary.
func newAccount(v *Vocabulary) *account { return &account{perToken: tokenWork + int64(len(v.tokens))} }

var keySeed = maphash.MakeSeed()

// chargeMask charges a mask, unless the account was charged for it before.
func (a *account) chargeMask(v *Vocabulary, config *grammar.Config, m *stateMask) error {
	key := maphash.String(keySeed, config.Key())
	if a.masks[key] {
		return nil
	}
	if a.masks == nil || len(a.masks) >= v.maxMasks() || a.bytes > grammar.MaxCacheBytes {
		a.masks, a.bytes = map[uint64]bool{}, 0
	}
	a.masks[key] = true
	a.bytes += m.bytes
	units := m.work
	for _, state := range m.states {
		if a.states[state.key] {
			continue
		}
		units += state.units
		if state.large {
			continue
		}
		if a.states == nil || len(a.states) >= v.maxMasks() {
			a.states = map[stateKey]bool{}
		}
		a.states[state.key] = true
	}
	return a.charge(units)
}

// charge charges units of work. It returns an error that is meter.ErrTooLarge if fewer are left.
func (a *account) charge(units int) error {
	if allowed := answerWork + a.perToken*a.tokens.Load(); a.spent.Add(int64(units)) > allowed {
		return a.refuse(&meter.LimitError{Limit: meter.Work, Allowed: int(allowed)})
	}
	return nil
}

// refuse returns the error of an answer that has reached a limit. The account refuses everything from then on.
func (a *account) refuse(limit error) error {
	a.spent.Store(math.MaxInt32 * answerWork)
	return fmt.Errorf("after %d tokens, the next token of the required form needs too much work: the limit for an answer is %d units, "+
		"and %d for each token; a less ambiguous or smaller form needs less: %w", a.tokens.Load(), answerWork, a.perToken, limit)
}
