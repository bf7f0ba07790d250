package workload

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
)

// Talk describes conversations. The number of turns has a geometric distribution with the mean Turns. The
// pause from an answer to the next turn has an exponential distribution with the mean Think.
type Talk struct {
	Turns float64 // at least 1
	Think float64 // s
}

// Conversations returns sessions. Each begins with a request of openings. The prompt of a later turn is the
// conversation so far and a new text; l draws the lengths of the text and of the answer. The number of turns is random,
// with the mean t.Turns, but a session ends before a turn whose prompt and answer would together have more tokens than
// limit. The error wraps ErrSetting.
func Conversations(openings Source, l Lengths, t Talk, seed uint64, limit int) (Sessions, error) {
	if !(t.Turns >= 1) || math.IsInf(t.Turns, 0) || !(t.Think >= 0) || math.IsInf(t.Think, 0) {
		return nil, fmt.Errorf("%w: conversations of %v turns with pauses of %v s: want at least 1 turn and 0 s", ErrSetting,
			t.Turns, t.Think)
	}
	return &conversations{Source: openings, lengths: l, talk: t, limit: limit, rng: rand.New(rand.NewPCG(seed, 3)),
		said: map[int64]int{}}, nil
}

type conversations struct {
	Source
	lengths     Lengths
	talk        Talk
	limit       int
	rng         *rand.Rand
	lastSession int64
	said        map[int64]int // tokens so far, by session
}

func (c *conversations) Next(r *Request) error {
	if err := c.Source.Next(r); err != nil {
		return err
	}
	c.lastSession++
	r.Session, r.Shared = c.lastSession, 0
	c.said[r.Session] = r.Prompt + r.Output
	return nil
}

func (c *conversations) Follow(session int64, answered float64, r *Request) bool {
	said, ends := c.said[session], c.rng.Float64() < 1/c.talk.Turns
	prompt, output := c.lengths.Draw(c.rng)
	if ends || said+prompt+output > c.limit {
		delete(c.said, session)
		return false
	}
	*r = Request{Arrival: answered + c.talk.Think*c.rng.ExpFloat64(), Prompt: said + prompt, Output: output,
		Session: session}
	c.said[session] = r.Prompt + r.Output
	return true
}

// SessionsOf finds the conversations in a trace whose rows have hashes, such as Mooncake's. A row continues an earlier
// row under these conditions:
//
//   - The row's prompt begins with all whole blocks of the earlier prompt. A block has hashTokens tokens.
//   - The earlier prompt has at least two whole blocks, because prompts with an equal first block may only share a
//     system prompt.
//   - No other row continues the earlier row.
//   - If the prompts of several earlier rows have the same whole blocks, only the latest of these rows can be
//     continued.
//
// If these conditions are met for several earlier rows, the row continues the one with the most whole blocks.
//
// A turn arrives at the time of its row, but not earlier than think seconds after the answer to the previous turn.
// SessionsOf reads all rows before it returns.
func SessionsOf(s Source, think float64) (Sessions, error) {
	if !(think >= 0) || math.IsInf(think, 0) {
		return nil, fmt.Errorf("%w: a pause of %v s: want at least 0", ErrSetting, think)
	}
	t := &traced{think: think}
	tails := map[int64]int{} // rows that no row continues so far, by the hash of their last whole block
	for {
		var r Request
		err := s.Next(&r)
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, err
		}
		r.Hashes = append([]int64(nil), r.Hashes...)
		row := len(t.rows)
		t.rows, t.after, t.first = append(t.rows, r), append(t.after, -1), append(t.first, true)
		whole := r.Prompt / hashTokens
		for i := min(whole, len(r.Hashes)) - 1; i > 0; i-- {
			if before, ok := tails[r.Hashes[i]]; ok {
				t.after[before], t.first[row] = row, false
				delete(tails, r.Hashes[i])
				break
			}
		}
		if whole > 1 && whole <= len(r.Hashes) {
			tails[r.Hashes[whole-1]] = row
		}
	}
}

type traced struct {
	rows  []Request
	after []int  // the row that continues a row, or -1
	first []bool // by row: it continues no other row
	next  int
	think float64
}

func (t *traced) Next(r *Request) error {
	for ; t.next < len(t.rows); t.next++ {
		if t.first[t.next] {
			*r = t.rows[t.next]
			t.next++
			r.Session = int64(t.next) // its row, from 1
			return nil
		}
	}
	return io.EOF
}

func (t *traced) Follow(session int64, answered float64, r *Request) bool {
	next := t.after[session-1]
	if next < 0 {
		return false
	}
	*r = t.rows[next]
	r.Arrival = max(r.Arrival, answered+t.think)
	r.Session = int64(next + 1)
	return true
}
