package structured

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/meter"
)

// spending plays tokens, or if there are none an answer that it chooses, and returns what the account was charged so far
// after each mask and each token. Between them it calls between.
func spending(t *testing.T, c *Constraint, tokens []int, between func()) (spent []int64) {
	m := c.NewMatcher()
	mask := make([]uint64, c.vocabulary.Words())
	for i := 0; i < max(len(tokens), 12) && !m.Done(); i++ {
		if tokens != nil && i == len(tokens) {
			break
		}
		err := m.Mask(mask)
		spent = append(spent, m.account.spent.Load())
		between()
		if err != nil {
			require.ErrorIs(t, err, meter.ErrTooLarge)
			break
		}
		token := nth(mask, 7*i)
		if tokens != nil {
			token = tokens[i]
		}
		err = m.Accept(token)
		spent = append(spent, m.account.spent.Load())
		between()
		if err != nil {
			break
		}
	}
	return spent
}

// checkSpending ensures that an answer is charged the same in a new server, after itself, after answers to others that
// left something in the caches of the vocabulary, and when these answers displace what the caches have.
func checkSpending(t *testing.T, made func() *Vocabulary, form Form, tokens []int, others ...Form) {
	nothing := func() {}
	cold, err := Compile(made(), form)
	if err != nil {
		return
	}
	want := spending(t, cold, tokens, nothing)
	for range 2 {
		require.Equal(t, want, spending(t, cold, tokens, nothing), "after itself")
	}
	forget := func() { cold.runner.Forget(); clear(cold.cache); clear(cold.vocabulary.cache) }
	require.Equal(t, want, spending(t, cold, tokens, forget), "others displace what is cached")
	require.Equal(t, want, spending(t, cold, tokens, nothing), "after that")
	v := made()
	for _, other := range others {
		if c, err := Compile(v, other); err == nil {
			spending(t, c, nil, nothing)
		}
	}
	require.Equal(t, want, spending(t, compiled(t, v, form), tokens, nothing), "after others")
}

// Ensure that what an answer is charged does not depend on what other answers left in the caches.
func TestAnAccountDoesNotDependOnCaches(t *testing.T) {
	cases := readCases(t, filepath.Join("testdata", "sample.jsonl"))
	var all []Form
	for _, c := range cases {
		all = append(all, Form{JSONSchema: c.Schema})
	}
	for i, c := range cases {
		made := func() *Vocabulary { return smallVocabulary(t, c.Schema) }
		checkSpending(t, made, all[i], nil, all...)
		for _, test := range c.Tests {
			checkSpending(t, made, all[i], made().tokenize(spaced(test.Data)), all...)
		}
	}
	made := func() *Vocabulary { return smallVocabulary(t, []byte("aaaaaaaabbbbab")) }
	for _, kind := range hostile {
		t.Run(kind.name, func(t *testing.T) { checkSpending(t, made, kind.form(16), nil, kind.form(8), kind.form(17)) })
	}
	length := func(limits string) Form { return Form{JSONSchema: fmt.Appendf(nil, `{"type": "string", %s}`, limits)} }
	checkSpending(t, made, length(`"maxLength": 1000`), nil, length(`"maxLength": 2000`), length(`"minLength": 0`), length(`"minLength": 50, "maxLength": 60`))
}
