package openai

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnAllowanceComesBackEvenly(t *testing.T) {
	a := newAllowance(Limits{Requests: 3, Tokens: 100})
	begin := time.Unix(1000, 0)
	steps := []struct {
		name    string
		seconds float64
		tokens  int
		refused bool
		left    [2]string // requests and tokens, after it
	}{
		{"the first", 0, 10, false, [2]string{"2", "90"}},
		{"too few tokens are left, and no request is used up", 0, 95, true, [2]string{"2", "90"}},
		{"what is left", 0, 90, false, [2]string{"1", "0"}},
		{"tokens came back", 6, 10, false, [2]string{"0", "0"}},
		{"no request is left", 6, 0, true, [2]string{"0", "0"}},
		{"a request came back", 20, 20, false, [2]string{"0", "3"}},
	}
	for _, s := range steps {
		h := http.Header{}
		err := a.take(h, s.tokens, begin.Add(time.Duration(s.seconds*float64(time.Second))))
		require.Equal(t, s.refused, err != nil, s.name)
		require.Equal(t, s.refused, h.Get("Retry-After") != "", s.name)
		require.Equal(t, s.left, [2]string{h.Get("X-Ratelimit-Remaining-Requests"), h.Get("X-Ratelimit-Remaining-Tokens")},
			s.name)
	}
}
