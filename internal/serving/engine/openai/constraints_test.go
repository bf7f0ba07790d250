package openai

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/induction"
	"llmmemory/internal/serving/structured"
	"llmmemory/internal/serving/toolparser"
)

// large is a form that needs much work.
var large = structured.Form{Regex: "((c{1,1000}){1,1000}){1,998}"}

func (c *constraints) compile(ctx context.Context, form structured.Form) error {
	_, err := c.get(ctx, "client", &shape{content: &form}, &prompt{})
	return err
}

func inductionConstraints() *constraints {
	return newConstraints(engine.Config{Model: &model.Model{Config: induction.Config(1)}, Tokenizer: induction.Tokenizer()})
}

// Ensure that a form is compiled in the slot for large forms if it needs much work. It leaves the slot for small
// forms free.
func TestOnlyALargeFormTakesTheSlotOfLargeOnes(t *testing.T) {
	for text, large := range map[string]bool{"(a{500}){100}": true, "a{300}": false} {
		synctest.Test(t, func(t *testing.T) {
			c := inductionConstraints()
			require.NoError(t, c.large.take(t.Context(), "another"))
			ended := make(chan error, 1)
			go func() { ended <- c.compile(t.Context(), structured.Form{Regex: text}) }()
			synctest.Wait()
			require.Equal(t, large, len(c.large.waiting) == 1, text)
			require.False(t, c.small.busy)
			c.large.end()
			require.NoError(t, <-ended)
			require.False(t, c.large.busy)
		})
	}
}

// If a form cannot be compiled, its error is kept. Ensure that a second request with this form gets the error without
// waiting for a compilation. Kept errors must not displace kept constraints.
func TestRefusalsAreKept(t *testing.T) {
	c := inductionConstraints()
	require.NoError(t, c.compile(t.Context(), structured.Form{Regex: "a"}))
	refused := func(i int) structured.Form {
		return structured.Form{Regex: fmt.Sprintf("%s(?=%d", strings.Repeat("é", 3000), i)}
	}
	var first error
	for i := range maxRefusals + 1 {
		first = c.compile(t.Context(), refused(i))
		require.ErrorContains(t, first, "ééé")
		require.LessOrEqual(t, len(first.Error()), maxRefusal)
	}
	require.NoError(t, c.small.take(t.Context(), "another"))
	require.NoError(t, c.large.take(t.Context(), "another"))
	ctx, gone := context.WithCancel(t.Context())
	gone()
	require.Equal(t, first, c.compile(ctx, refused(maxRefusals)))
	require.NoError(t, c.compile(ctx, structured.Form{Regex: "a"}))
	require.Equal(t, errGone, c.compile(ctx, refused(0)), "the refusal used last is kept, the first is not")
	require.Len(t, c.refusals, maxRefusals)
}

// Ensure that a request that waited for the slot of small forms gets the refusal of its form that another request has
// found meanwhile, and does not wait for the slot of large forms.
func TestAKnownRefusalDoesNotWaitForLargeForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which waiting without end is an error
		c := inductionConstraints()
		require.NoError(t, c.small.take(t.Context(), "another"))
		require.NoError(t, c.large.take(t.Context(), "another"))
		ended := make(chan error, 1)
		go func() { ended <- c.compile(t.Context(), large) }()
		synctest.Wait()
		text, err := json.Marshal(large)
		require.NoError(t, err)
		refusal := fmt.Errorf("refused: %w", structured.ErrTooLarge)
		c.keep(&c.refusals, maxRefusals, compilation{key: sha256.Sum256(text), err: refusal})
		c.small.end()
		require.Equal(t, refusal, <-ended)
	})
}

// Ensure that a form is compiled at once if it needs little work, even while a large form is compiled and another one
// waits. A client that leaves while its form waits gets errGone.
func TestALargeFormDoesNotDelaySmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := inductionConstraints()
		require.NoError(t, c.large.take(t.Context(), "another")) // another large form is being compiled
		ctx, gone := context.WithCancel(t.Context())
		waiting := make(chan error)
		go func() { waiting <- c.compile(ctx, large) }()
		synctest.Wait()
		require.Len(t, c.large.waiting, 1)
		for _, text := range []string{"a", "b"} {
			require.NoError(t, c.compile(t.Context(), structured.Form{Regex: text}))
		}
		gone()
		require.Equal(t, errGone, <-waiting)
		c.large.end()
		require.NoError(t, c.compile(t.Context(), structured.Form{Regex: "(a{500}){100}"})) // takes its turn at once
	})
}

// leaving is the context of a client that leaves after the context has been read some times.
type leaving struct {
	context.Context
	reads int
}

func (l *leaving) Err() error {
	if l.reads--; l.reads < 0 {
		return context.Canceled
	}
	return nil
}

// Ensure that a client that leaves at any moment of a compilation, also between its two attempts, gets errGone or the
// constraint, and that the work ends.
func TestAClientThatLeavesGetsErrGone(t *testing.T) {
	c := inductionConstraints()
	for reads := 0; ; reads += 1 + reads/10 {
		ctx := &leaving{t.Context(), reads}
		err := c.compile(ctx, structured.Form{Regex: "(a{500}){40}"})
		require.False(t, c.small.busy || c.large.busy)
		if err == nil {
			return
		}
		require.Equal(t, errGone, err, reads)
		require.Empty(t, c.refusals)
	}
}

// Ensure that a form that cannot be obeyed is refused even while a large form is compiled. There is one exception: if
// a schema of a tool cannot be obeyed, the request is not refused, and the form is compiled without this schema.
func TestRefusalsDoNotWaitForLargeForms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which waiting without end is an error
		c := inductionConstraints()
		require.NoError(t, c.large.take(t.Context(), "another")) // a large form is being compiled
		for _, form := range []structured.Form{
			{Regex: "("}, {Grammar: "a ::= b"}, {JSONSchema: json.RawMessage(`{"$ref": "#/a"}`)},
			{JSONSchema: json.RawMessage(`{"type": "array", "uniqueItems": true, "items": {"type": "number"}}`)},
			{JSONSchema: json.RawMessage(`{"type": "integer", "minimum": 5, "maximum": 4}`)},
		} {
			require.Error(t, c.compile(t.Context(), form))
		}
		s := &shape{format: toolparser.Choose("<tool_call>arguments"), mode: auto, tools: []tool{
			{name: "f", parameters: json.RawMessage(`{"properties": {"a": {"uniqueItems": true, "items": {"type": "number"}}}}`)},
		}}
		_, err := c.get(t.Context(), "client", s, &prompt{})
		require.NoError(t, err)
		require.NotEmpty(t, s.loose)
	})
}

// Ensure that the compilation of a form ends when its client disconnects.
func TestTheWorkForAFormEndsWithItsClient(t *testing.T) {
	ctx, gone := context.WithCancel(t.Context())
	gone()
	_, err := structured.CompileWithin(ctx, byteVocabulary(t), large, structured.CompileWork)
	require.ErrorIs(t, err, context.Canceled)
}
