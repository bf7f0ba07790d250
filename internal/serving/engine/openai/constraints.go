package openai

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/structured"
)

// maxConstraints is how many constraints are kept. One has at most 16 MiB of masks, and most have little.
const maxConstraints = 16

const (
	maxRefusals = 256  // refusals that are kept
	maxRefusal  = 2000 // bytes of one
)

// littleWork is the work with which a form is first compiled. Most forms need less.
const littleWork = structured.CompileWork / 25

// constraints compiles the forms of answers and keeps those used last. Forms that need much work are compiled one at a
// time, beside those that need little work.
type constraints struct {
	config     engine.Config
	little     chan struct{} // has an element while a form is compiled with little work
	much       chan struct{} // has an element while a form is compiled with much work
	vocabulary *structured.Vocabulary

	mutex    sync.Mutex
	kept     []compiled // the first was used last
	refusals []compiled // the same, of forms that cannot be compiled
}

// compiled is the constraint of a form, or the reason why there is none.
type compiled struct {
	key        [sha256.Size]byte
	constraint *structured.Constraint
	err        error
}

func newConstraints(c engine.Config) *constraints {
	return &constraints{config: c, little: make(chan struct{}, 1), much: make(chan struct{}, 1)}
}

// constraint returns the constraint of a job, or nil.
func (s *Server) constraint(ctx context.Context, j *job) (*structured.Constraint, error) {
	j.shape.compact = j.shape.compact || s.config.CompactJSON
	constraint, err := s.constraints.get(ctx, &j.shape, &j.prompts[0])
	if err != nil && ctx.Err() == nil {
		return nil, j.shape.refusal(err)
	}
	return constraint, err
}

// get returns the constraint of answers to a prompt, or nil. After ctx has ended, it returns errGone.
func (c *constraints) get(ctx context.Context, shape *shape, p *prompt) (*structured.Constraint, error) {
	form := shape.form(p)
	if form == nil {
		return nil, nil
	}
	text, err := json.Marshal(form)
	if err != nil {
		return nil, fmt.Errorf("the form: %w", err)
	}
	key := sha256.Sum256(text)
	if known, ok := c.find(key); ok {
		return known.constraint, known.err
	}
	var v *structured.Vocabulary
	constraint, err := c.inTurn(ctx, c.little, key, func() (*structured.Constraint, error) {
		if c.vocabulary == nil {
			made, err := newVocabulary(&c.config)
			if err != nil {
				return nil, fmt.Errorf("the model's vocabulary: %w", err)
			}
			c.vocabulary = made
		}
		v = c.vocabulary
		return compileLoose(ctx, v, shape, p, littleWork)
	})
	if ctx.Err() != nil || !errors.Is(err, structured.ErrTooLarge) {
		return constraint, err
	}
	return c.inTurn(ctx, c.much, key, func() (*structured.Constraint, error) {
		return compileLoose(ctx, v, shape, p, structured.CompileWork)
	})
}

// inTurn calls compile when no other call has the turn, unless the result is kept by then.
func (c *constraints) inTurn(
	ctx context.Context, turn chan struct{}, key [sha256.Size]byte, compile func() (*structured.Constraint, error),
) (*structured.Constraint, error) {
	select {
	case turn <- struct{}{}:
	case <-ctx.Done():
		return nil, errGone
	}
	defer func() { <-turn }()
	if known, ok := c.find(key); ok {
		return known.constraint, known.err
	}
	constraint, err := compile()
	switch {
	case ctx.Err() != nil:
		return nil, errGone
	case err == nil:
		c.keep(&c.kept, maxConstraints, compiled{key: key, constraint: constraint})
	case turn == c.much || !errors.Is(err, structured.ErrTooLarge): // more work does not help
		err = shorten(err)
		c.keep(&c.refusals, maxRefusals, compiled{key: key, err: err})
	}
	return constraint, err
}

// shorten leaves out the middle of an error that has a large part of a form.
func shorten(err error) error {
	text := err.Error()
	if len(text) <= maxRefusal {
		return err
	}
	half := maxRefusal/2 - 5
	return errors.New(strings.ToValidUTF8(text[:half]+" ... "+text[len(text)-half:], ""))
}

// compileLoose compiles the form of answers to a prompt with at most the given work. It loosens the shape if that is
// allowed and needed, and more work does not help.
func compileLoose(
	ctx context.Context, v *structured.Vocabulary, shape *shape, p *prompt, work int,
) (*structured.Constraint, error) {
	for {
		constraint, err := structured.CompileWithin(ctx, v, *shape.form(p), work)
		if err == nil || ctx.Err() != nil || work < structured.CompileWork && errors.Is(err, structured.ErrTooLarge) ||
			!shape.loosen(err) {
			return constraint, err
		}
	}
}

func (c *constraints) find(key [sha256.Size]byte) (compiled, bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, list := range [][]compiled{c.kept, c.refusals} {
		if i := slices.IndexFunc(list, func(k compiled) bool { return k.key == key }); i >= 0 {
			found := list[i]
			copy(list[1:], list[:i])
			list[0] = found
			return found, true
		}
	}
	return compiled{}, false
}

// keep adds a result to a list, which has at most a number of them.
func (c *constraints) keep(list *[]compiled, most int, one compiled) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	*list = slices.Insert(*list, 0, one)
	if len(*list) > most {
		*list = slices.Delete(*list, most, len(*list))
	}
}

// maxTokenBytes is the longest token in bytes that an answer with a form may have, a limit of structured.NewVocabulary.
const maxTokenBytes = 1024

// newVocabulary returns the vocabulary of an engine's model. Special tokens occur only as the end of an answer and where
// a form names them.
func newVocabulary(c *engine.Config) (*structured.Vocabulary, error) {
	tokens, special := make([][]byte, c.Model.VocabSize), map[int]string{}
	for i := range tokens {
		piece := c.Tokenizer.Piece(int32(i))
		switch {
		case len(piece) >= maxTokenBytes:
		case c.Tokenizer.Special(int32(i)):
			special[i] = string(piece)
		default:
			tokens[i] = piece
		}
	}
	stop := make([]int, len(c.End))
	for i, id := range c.End {
		stop[i] = int(id)
	}
	return structured.NewVocabulary(tokens, special, stop)
}
