package openai

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"
)

// Limits are what each API key may use in a minute, or all requests together if there are no keys. 0 means no limit.
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

// check refuses a request that take would refuse whatever its tokens are.
func (a *allowance) check(h http.Header, now time.Time) error {
	defer a.report(h, now)
	for _, l := range []struct {
		of   *rate.Limiter
		what string
	}{{a.requests, "requests"}, {a.tokens, "tokens"}} {
		if err := take(l.of, l.what, h, now, 1); err != nil {
			return err
		}
		giveBack(l.of, now, 1)
	}
	return nil
}

// take takes a request and its tokens off the allowance, or nothing and returns the error. It writes OpenAI's
// headers. tokens is at least 0.
func (a *allowance) take(h http.Header, tokens int, now time.Time) error {
	defer a.report(h, now)
	if a.tokens != nil && tokens > a.tokens.Burst() {
		return refused(http.StatusBadRequest, "rate_limit_exceeded",
			"The request is of up to %d tokens; the limit is %d in a minute.", tokens, a.tokens.Burst())
	}
	if err := take(a.requests, "requests", h, now, 1); err != nil {
		return err
	}
	err := take(a.tokens, "tokens", h, now, tokens)
	if err != nil {
		giveBack(a.requests, now, 1)
	}
	return err
}

// giveBack gives back what take took for a request that was refused afterwards.
func (a *allowance) giveBack(h http.Header, tokens int, now time.Time) {
	giveBack(a.requests, now, 1)
	giveBack(a.tokens, now, tokens)
	a.report(h, now)
}

// take takes n, or nothing and returns the error.
func take(l *rate.Limiter, what string, h http.Header, now time.Time, n int) error {
	if l == nil || l.AllowN(now, n) {
		return nil
	}
	missing := max(0, float64(n)-l.TokensAt(now))
	wait := time.Duration(missing / float64(l.Limit()) * float64(time.Second))
	h.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	return failure(http.StatusTooManyRequests, "rate_limit_error", "rate_limit_exceeded",
		fmt.Sprintf("The limit is %d %s in a minute; try again in %v.", l.Burst(), what, wait.Round(time.Millisecond)))
}

// giveBack takes -n: the limiter then has n more, and never more than its burst.
func giveBack(l *rate.Limiter, now time.Time, n int) {
	if l != nil {
		l.AllowN(now, -n)
	}
}

func (a *allowance) report(h http.Header, now time.Time) {
	report(h, "requests", a.requests, now)
	report(h, "tokens", a.tokens, now)
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
