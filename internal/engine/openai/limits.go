package openai

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"
)

// Limits are what each API key may use in a minute; without keys, what all
// requests together may. 0: as much as it wants.
type Limits struct {
	Requests int
	Tokens   int // of prompts, and of answers as long as max_tokens lets them be
}

// An allowance is what one key may still use. A minute's worth can be used at once, and comes
// back evenly.
type allowance struct{ requests, tokens *rate.Limiter }

func newAllowance(l Limits) *allowance {
	bucket := func(n int) *rate.Limiter {
		if n == 0 {
			return nil
		}
		return rate.NewLimiter(rate.Limit(float64(n)/60), n)
	}
	return &allowance{bucket(l.Requests), bucket(l.Tokens)}
}

// take takes a request's tokens off the allowance, or nothing and returns the error. It writes OpenAI's
// headers.
func (a *allowance) take(h http.Header, tokens int, now time.Time) error {
	defer func() {
		report(h, "requests", a.requests, now)
		report(h, "tokens", a.tokens, now)
	}()
	if a.tokens != nil && tokens > a.tokens.Burst() {
		return failure(http.StatusBadRequest, "invalid_request_error", "rate_limit_exceeded",
			fmt.Sprintf("The request is of up to %d tokens; the limit is %d in a minute.", tokens, a.tokens.Burst()))
	}
	asked, err := reserve(a.requests, "requests", h, now, 1)
	if err != nil {
		return err
	}
	if _, err = reserve(a.tokens, "tokens", h, now, tokens); err != nil && asked != nil {
		asked.CancelAt(now)
	}
	return err
}

// reserve takes n, or nothing and returns the error.
func reserve(l *rate.Limiter, what string, h http.Header, now time.Time, n int) (*rate.Reservation, error) {
	if l == nil {
		return nil, nil
	}
	r := l.ReserveN(now, n)
	wait := r.DelayFrom(now)
	if wait == 0 {
		return r, nil
	}
	r.CancelAt(now)
	h.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	return nil, failure(http.StatusTooManyRequests, "rate_limit_error", "rate_limit_exceeded",
		fmt.Sprintf("The limit is %d %s in a minute; try again in %v.", l.Burst(), what, wait.Round(time.Millisecond)))
}

func report(h http.Header, what string, l *rate.Limiter, now time.Time) {
	if l == nil {
		return
	}
	left := max(0, l.TokensAt(now))
	h.Set("X-Ratelimit-Limit-"+what, strconv.Itoa(l.Burst()))
	h.Set("X-Ratelimit-Remaining-"+what, strconv.Itoa(int(left)))
	full := time.Duration((float64(l.Burst()) - left) / float64(l.Limit()) * float64(time.Second))
	h.Set("X-Ratelimit-Reset-"+what, full.Round(time.Millisecond).String())
}
