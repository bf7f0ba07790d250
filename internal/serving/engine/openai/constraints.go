package openai

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/structured"
)

// maxConstraints is the number of constraints in memory. The masks of a constraint take up to 8 MiB, and its other
// caches more.
const maxConstraints = 16

const (
	maxRefusals = 256  // refusals that are kept
	maxRefusal  = 2000 // bytes of one
)

// smallWork limits the work of the first attempt to compile a form, which suffices for most forms.
const smallWork = structured.CompileWork / 25

// constraints compiles the forms of answers, and keeps the constraints and the refusals used last. The first attempt to
// compile a form is limited to smallWork. If this limit is too small, a second attempt is limited to
// structured.CompileWork. At most one first attempt and one second attempt run at a time, so a large form does not
// delay small forms. Clients take turns.
type constraints struct {
	config     engine.Config
	small      turns // to compile a form with little work
	large      turns // to compile a form with much work
	vocabulary *structured.Vocabulary

	mutex    sync.Mutex
	kept     []compilation // the first was used last
	refusals []compilation // the same, of forms that cannot be compiled
}

// A compilation is the constraint for a form, or the error if the form cannot be compiled.
type compilation struct {
	key        [sha256.Size]byte
	constraint *structured.Constraint
	err        error
}

func newConstraints(c engine.Config) *constraints {
	return &constraints{config: c}
}

// constraint returns the constraint of a job, or nil.
func (s *Server) constraint(r *http.Request, j *job) (*structured.Constraint, error) {
	ctx := r.Context()
	j.shape.compactJSON = j.shape.compactJSON || s.config.CompactJSON
	constraint, err := s.constraints.get(ctx, s.clientOf(r), &j.shape, &j.prompts[0])
	if err != nil && ctx.Err() == nil {
		return nil, j.shape.refusal(err)
	}
	return constraint, err
}

// get returns the constraint of answers to a prompt, or nil if any answer is allowed. If a schema of a tool cannot be
// obeyed and shape.loosen allows it, get tries again without that schema. After ctx has ended, it returns errGone.
func (c *constraints) get(ctx context.Context, client string, shape *shape, p *prompt) (*structured.Constraint, error) {
	for {
		form := shape.form(p)
		if form == nil {
			return nil, nil
		}
		constraint, err := c.compiled(ctx, client, form)
		if err == nil || ctx.Err() != nil || !shape.loosen(err) {
			return constraint, err
		}
	}
}

// compiled returns the constraint for a form. The result that is kept depends on the form only: not on the request, nor
// on the tools that may be loosened.
func (c *constraints) compiled(ctx context.Context, client string, form *structured.Form) (*structured.Constraint, error) {
	text, err := json.Marshal(form)
	if err != nil {
		return nil, fmt.Errorf("the form: %w", err)
	}
	key := sha256.Sum256(text)
	if known, ok := c.find(key); ok {
		return known.constraint, known.err
	}
	var v *structured.Vocabulary
	result, final := c.exclusively(ctx, &c.small, client, key, func() (*structured.Constraint, error) {
		if c.vocabulary == nil {
			made, err := newVocabulary(&c.config)
			if err != nil {
				return nil, fmt.Errorf("the model's vocabulary: %w", err)
			}
			c.vocabulary = made
		}
		v = c.vocabulary
		return structured.CompileWithin(ctx, v, *form, smallWork)
	})
	if !final {
		result, _ = c.exclusively(ctx, &c.large, client, key, func() (*structured.Constraint, error) {
			return structured.CompileWithin(ctx, v, *form, structured.CompileWork)
		})
	}
	return result.constraint, result.err
}

// exclusively waits for the client's turn, calls compile and keeps the result. If another request has compiled the form
// with this key meanwhile, it returns the result of that compilation instead. The result is final unless it is the
// error of a first attempt that needs more work.
func (c *constraints) exclusively(
	ctx context.Context, slot *turns, client string, key [sha256.Size]byte, compile func() (*structured.Constraint, error),
) (result compilation, final bool) {
	if err := slot.take(ctx, client); err != nil {
		return compilation{err: err}, true
	}
	defer slot.end()
	if known, ok := c.find(key); ok {
		return known, true
	}
	constraint, err := compile()
	switch {
	case ctx.Err() != nil:
		return compilation{err: errGone}, true
	case err == nil:
		result = compilation{key: key, constraint: constraint}
		c.keep(&c.kept, maxConstraints, result)
	case slot == &c.large || !errors.Is(err, structured.ErrTooLarge): // more work does not help
		result = compilation{key: key, err: shorten(err)}
		c.keep(&c.refusals, maxRefusals, result)
	default:
		return compilation{err: err}, false
	}
	return result, true
}

// shorten shortens the text of an error, which may contain a large part of a form. It leaves out the middle.
func shorten(err error) error {
	text := err.Error()
	if len(text) <= maxRefusal {
		return err
	}
	half := maxRefusal/2 - 5
	return errors.New(strings.ToValidUTF8(text[:half]+" ... "+text[len(text)-half:], ""))
}

func (c *constraints) find(key [sha256.Size]byte) (compilation, bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, list := range [][]compilation{c.kept, c.refusals} {
		if i := slices.IndexFunc(list, func(k compilation) bool { return k.key == key }); i >= 0 {
			found := list[i]
			copy(list[1:], list[:i])
			list[0] = found
			return found, true
		}
	}
	return compilation{}, false
}

// keep puts a result first in a list, and removes the last results if there are more than maxLen.
func (c *constraints) keep(list *[]compilation, maxLen int, one compilation) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	*list = slices.Insert(*list, 0, one)
	if len(*list) > maxLen {
		*list = slices.Delete(*list, maxLen, len(*list))
	}
}

// maxTokenBytes limits the length of the tokens in answers with a form. newVocabulary leaves out tokens of this length
// and longer ones, because structured.NewVocabulary refuses long tokens.
const maxTokenBytes = 1024

// clientOf returns the API key of a request as its index, or the client's address if there are no keys.
func (s *Server) clientOf(r *http.Request) string {
	if len(s.keys) > 0 {
		return fmt.Sprintf("key %d", s.key(r))
	}
	return clientOf(r)
}

// newVocabulary returns the vocabulary of an engine's model. Special tokens can occur only at the end of an answer and
// where a form names them.
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
