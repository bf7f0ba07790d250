package structured

import (
	"context"
	"fmt"
	"slices"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/grammar"
)

// Matcher follows the answer of one sequence. A Matcher is not safe for concurrent use, but several matchers
// of one constraint may run at once.
type Matcher struct {
	constraint *Constraint
	configs    []*grammar.Config // after each token; the first is the start
	stopped    bool              // the last token ended the answer
	account    *account
}

// NewMatcher returns a matcher for an answer that has not begun.
func (c *Constraint) NewMatcher() *Matcher {
	return &Matcher{constraint: c, configs: []*grammar.Config{c.start}, account: newAccount(c.vocabulary)}
}

func (m *Matcher) last() *grammar.Config { return m.configs[len(m.configs)-1] }

// charged calls do, which may use the constraint, with a meter for one mask or token, and makes the account refuse if the
// meter has refused. After the account has refused, it always refuses.
func (m *Matcher) charged(do func(work *meter.Meter) error) error {
	c := m.constraint
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err := m.account.charge(0); err != nil {
		return err
	}
	work := meter.New(context.Background(), meter.Limits{Work: answerWork, Bytes: tokenBytes})
	c.charge(work)
	defer c.runner.Shrink()
	err := do(work)
	if work.Err() != nil {
		return m.account.refuse(work.Err())
	}
	return err
}

// Mask sets bit t%64 of mask[t/64] for each token t that may come next, and clears all other bits. If the answer may
// end, the tokens that end an answer may come next too. Mask returns an error that is meter.ErrTooLarge if the form
// needs too much work.
func (m *Matcher) Mask(mask []uint64) error {
	if m.stopped {
		clear(mask)
		return nil
	}
	return m.charged(func(*meter.Meter) error {
		config := m.current()
		tokens, err := m.constraint.mask(config)
		if err == nil {
			err = m.account.chargeMask(m.constraint.vocabulary, config, tokens)
		}
		if err != nil {
			clear(mask)
			return err
		}
		clear(mask[copy(mask, tokens.mask):])
		return nil
	})
}

// current returns the config after the last token. If the runner has removed this config from its cache,
// current replaces it by the copy that Runner.Current returns. The caller must hold the mutex.
func (m *Matcher) current() *grammar.Config {
	config := m.constraint.runner.Current(m.last())
	m.configs[len(m.configs)-1] = config
	return config
}

// Accept adds a token. If the token is not allowed, or if the form needs too much work, Accept returns an error and adds
// nothing.
func (m *Matcher) Accept(token int) error {
	v := m.constraint.vocabulary
	if token < 0 || token >= len(v.tokens) {
		return fmt.Errorf("token %d is not in the vocabulary, which has %d tokens", token, len(v.tokens))
	}
	if m.stopped {
		return fmt.Errorf("token %d comes after the end of the answer", token)
	}
	for _, stop := range v.stop {
		if int(stop) == token {
			if !m.last().Accept {
				return fmt.Errorf("token %d ends the answer before it is complete", token)
			}
			m.configs = append(m.configs, m.last())
			m.stopped = true
			return nil
		}
	}
	if len(v.tokens[token]) == 0 {
		return fmt.Errorf("token %d has no bytes", token)
	}
	return m.charged(func(work *meter.Meter) error {
		config := m.current()
		for _, b := range v.tokens[token] {
			if config = m.constraint.runner.Step(config, b); config == nil {
				break
			}
		}
		if err := m.account.charge(work.Spent()); err != nil || work.Err() != nil {
			return err
		}
		if config == nil {
			return fmt.Errorf("token %d (%q) is not allowed here", token, v.tokens[token])
		}
		m.configs = append(m.configs, config)
		m.account.tokens.Add(1)
		return nil
	})
}

// Rollback takes back the last n tokens.
func (m *Matcher) Rollback(n int) error {
	if n < 0 || n >= len(m.configs) {
		return fmt.Errorf("cannot take back %d of %d tokens", n, len(m.configs)-1)
	}
	if n > 0 {
		if m.stopped { // the last token was not counted
			m.account.tokens.Add(1)
		}
		m.account.tokens.Add(int64(-n))
		m.configs = m.configs[:len(m.configs)-n]
		m.stopped = false
	}
	return nil
}

// Clone returns a matcher that is where m is.
func (m *Matcher) Clone() *Matcher {
	clone := *m
	clone.configs = slices.Clone(m.configs)
	return &clone
}

// Fork returns a matcher in the same state as m. Rollback of the new matcher cannot take back the tokens that
// m has accepted.
func (m *Matcher) Fork() *Matcher {
	return &Matcher{m.constraint, []*grammar.Config{m.last()}, m.stopped, m.account}
}

// Len returns the number of accepted tokens.
func (m *Matcher) Len() int { return len(m.configs) - 1 }

// CanStop reports whether the answer so far is complete.
func (m *Matcher) CanStop() bool { return m.last().Accept }

// Done reports whether the answer is complete and cannot be continued.
func (m *Matcher) Done() bool { return m.stopped || m.last().Accept && len(m.last().Items) == 0 }
