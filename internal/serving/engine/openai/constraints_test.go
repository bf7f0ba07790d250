package openai

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/induction"
	"llmmemory/internal/serving/structured"
)

// Ensure that a constraint which is no longer kept can be used to its end, also beside a new constraint of the same form.
func TestAConstraintThatIsNoLongerKeptCanBeUsed(t *testing.T) {
	c := newConstraints(engine.Config{Model: &model.Model{Config: model.Config{VocabSize: 256}}, Tokenizer: induction.Tokenizer()})
	get := func(i int) *structured.Constraint {
		form := structured.Form{JSONSchema: fmt.Appendf(nil, `{"type": "array", "items": {"type": "string", "maxLength": %d}}`, i)}
		found, err := c.get(t.Context(), &shape{content: &form}, &prompt{})
		require.NoError(t, err)
		return found
	}
	first := get(9)
	require.Same(t, first, get(9))
	old := first.NewMatcher()
	for i := range maxConstraints + 1 {
		m := get(100 + i).NewMatcher()
		require.NoError(t, m.Accept('['))
	}
	next := get(9)
	require.NotSame(t, first, next)
	fresh := next.NewMatcher()
	for _, b := range []byte(`["one", "two", "three"]`) {
		masks := [2][4]uint64{}
		old.Mask(masks[0][:])
		fresh.Mask(masks[1][:])
		require.Equal(t, masks[1], masks[0])
		require.NoError(t, old.Accept(int(b)))
		require.NoError(t, fresh.Accept(int(b)))
	}
	require.True(t, old.Done())
}
