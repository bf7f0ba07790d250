package structured

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
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
func checkSpending(t *testing.T, v *Vocabulary, form Form, tokens []int, others ...Form) {
	nothing := func() {}
	clear(v.cache)
	cold, err := Compile(v, form)
	if err != nil {
		return
	}
	want := spending(t, cold, tokens, nothing)
	for range 2 {
		require.Equal(t, want, spending(t, cold, tokens, nothing), "after itself")
	}
	forget := func() { cold.runner.Forget(); clear(cold.cache); clear(v.cache) }
	require.Equal(t, want, spending(t, cold, tokens, forget), "others displace what is cached")
	require.Equal(t, want, spending(t, cold, tokens, nothing), "after that")
	clear(v.cache)
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
		v := smallVocabulary(t, c.Schema)
		tokens := v.tokenize(spaced(c.Tests[0].Data))
		checkSpending(t, v, all[i], tokens, all[(i+1)%len(all)], all[(i+7)%len(all)])
	}
	v := smallVocabulary(t, []byte("aaaaaaaabbbbab"))
	for _, kind := range hostile {
		t.Run(kind.name, func(t *testing.T) { checkSpending(t, v, kind.form(12), nil, kind.form(5), kind.form(13)) })
	}
	// The tokens that can follow in states of different lexemes are shared.
	length := func(limits string) Form { return Form{JSONSchema: fmt.Appendf(nil, `{"type": "string", %s}`, limits)} }
	var tokens []string // with many below one node
	for i := range 26 * 26 {
		tokens = append(tokens, fmt.Sprintf("a%c%c", 'a'+i/26, 'a'+i%26))
	}
	v = vocabularyOf(t, append(tokens, `"`, "a", "b")...)
	checkSpending(t, v, length(`"maxLength": 1000`), nil, length(`"minLength": 1`))
	checkSpending(t, v, length(`"minLength": 1`), nil, length(`"maxLength": 1000`))
}

// Ensure that an account is charged once for a mask that it needs again.
func TestAMaskIsChargedOnce(t *testing.T) {
	v := vocabularyOf(t, "a", "b")
	m := compiled(t, v, Form{Regex: "a*b"}).NewMatcher()
	mask := make([]uint64, v.Words())
	require.NoError(t, m.Mask(mask))
	spent := m.account.spent.Load()
	require.Positive(t, spent)
	require.NoError(t, m.Mask(mask))
	require.Equal(t, spent, m.account.spent.Load())
}

// Ensure that an answer that reaches the limit of its account reaches it at the same token whether or not another answer
// of the same form was made before.
func TestALimitDoesNotDependOnCaches(t *testing.T) {
	v := smallVocabulary(t, []byte("aaaaaaaabbbbab"))
	form := grammarOf("root ::= " + strings.Repeat("root ", 12) + `| "a"?`)
	last := func(c *Constraint, left int64) (int, error) {
		m := c.NewMatcher()
		m.account.spent.Store(answerWork - left)
		mask := make([]uint64, v.Words())
		for {
			if err := m.Mask(mask); err != nil {
				return m.Len(), err
			}
			if m.Len() == 3 {
				return 3, nil
			}
			if err := m.Accept(v.tokenize([]byte("a"))[0]); err != nil {
				return m.Len(), err
			}
		}
	}
	warm := compiled(t, v, form)
	_, err := last(warm, answerWork)
	require.NoError(t, err)
	refused := map[int]bool{}
	for left := int64(0); ; left += 1 + left/4 {
		clear(v.cache)
		wantLen, want := last(compiled(t, v, form), left)
		gotLen, got := last(warm, left)
		require.Equal(t, fmt.Sprint(wantLen, want), fmt.Sprint(gotLen, got), left)
		if want == nil {
			break
		}
		require.ErrorIs(t, want, meter.ErrTooLarge)
		refused[wantLen] = true
	}
	require.NotEmpty(t, refused)
}

// Ensure that an answer may have a new mask after each token, with a vocabulary of the size that models have.
func TestALongStringWithALimitNeedsNotTooMuchWork(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	tokens := []string{`"`}
	for len(tokens) < 128_000 {
		word := make([]byte, 1+rnd.IntN(9))
		for i := range word {
			word[i] = "etaoinshrdlucmf "[rnd.IntN(16)]
		}
		tokens = append(tokens, string(word))
	}
	m := compiled(t, vocabularyOf(t, tokens...), Form{JSONSchema: json.RawMessage(`{"type": "string", "maxLength": 20000}`)}).NewMatcher()
	mask := make([]uint64, m.constraint.vocabulary.Words())
	for i := range 1000 {
		require.NoError(t, m.Mask(mask), i)
		token := 0
		if i > 0 {
			token = 1 + rnd.IntN(len(tokens)-1)
		}
		require.NoError(t, m.Accept(token), i)
	}
	t.Log(m.account.spent.Load()/1000, "units for each token")
}
