package openai

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/induction"
	"llmmemory/internal/serving/structured"
)

// large is a form that needs much work.
var large = structured.Form{Regex: "((c{1,1000}){1,1000}){1,998}"}

func (c *constraints) compile(ctx context.Context, form structured.Form) error {
	_, err := c.get(ctx, &shape{content: &form}, &prompt{})
	return err
}

// Ensure that a form that needs little work is compiled while others that need much work are compiled and wait.
func TestALargeFormDoesNotDelaySmallOnes(t *testing.T) {
	c := newConstraints(engine.Config{Model: &model.Model{Config: induction.Config(1)}, Tokenizer: induction.Tokenizer()})
	c.much <- struct{}{} // another large form is being compiled
	ctx, gone := context.WithCancel(t.Context())
	waiting := make(chan error)
	go func() { waiting <- c.compile(ctx, large) }()
	for _, text := range []string{"a", "b"} {
		require.NoError(t, c.compile(t.Context(), structured.Form{Regex: text}))
	}
	gone()
	require.Equal(t, errGone, <-waiting)
	<-c.much
	require.ErrorContains(t, c.compile(t.Context(), large), "too much work")
}

// Ensure that the work for a form ends when its client goes.
func TestTheWorkForAFormEndsWithItsClient(t *testing.T) {
	ctx, gone := context.WithCancel(t.Context())
	gone()
	_, err := structured.CompileWithin(ctx, byteVocabulary(t), large, structured.CompileWork)
	require.ErrorIs(t, err, context.Canceled)
}
