package openai

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"
)

// Limits limit what each API key may use in a minute. Without keys, they apply to all requests together. 0 means no
// limit.
type Limits struct {
	Requests int
	Tokens   int // of prompts, and of answers as long as max_tokens allows
}

// An allowance is the number of requests and tokens that a key may use now. Without keys, there is one allowance for
// all requests. Each accepted request reduces the allowance. The allowance grows again at a constant rate, but not
// above the limit for a minute.
type allowance struct{ requests, tokens limiter }

type limiter struct {
	*rate.Limiter
	unit string
}

func newAllowance(l Limits) *allowance {
	limit := func(n int, unit string) limiter {
		if n == 0 {
			return limiter{rate.NewLimiter(rate.Inf, math.MaxInt), unit}
		}
		return limiter{rate.NewLimiter(rate.Limit(float64(n)/60), n), unit}
	}
	return &allowance{limit(l.Requests, "requests"), limit(l.Tokens, "tokens")}
}

// check returns an error if take would refuse even a request of one token. It does not reduce the allowance.
func (a *allowance) check(h http.Header, now time.Time) error {
	defer a.report(h, now)
	for _, l := range []limiter{a.requests, a.tokens} {
		if err := l.take(h, now, 1); err != nil {
			return err
		}
		l.giveBack(now, 1)
	}
	return nil
}

// take reduces the allowance by one request and the given tokens, or returns an error and changes nothing. It writes
// OpenAI's headers. tokens is at least 0.
func (a *allowance) take(h http.Header, tokens int, now time.Time) error {
	defer a.report(h, now)
	if tokens > a.tokens.Burst() {
		return refused(http.StatusBadRequest, "rate_limit_exceeded",
			"The request is of up to %d tokens; the limit is %d in a minute.", tokens, a.tokens.Burst())
	}
	if err := a.requests.take(h, now, 1); err != nil {
		return err
	}
	err := a.tokens.take(h, now, tokens)
	if err != nil {
		a.requests.giveBack(now, 1)
	}
	return err
}

// giveBack undoes an earlier call of take with the same number of tokens, because the request was refused afterwards.
func (a *allowance) giveBack(h http.Header, tokens int, now time.Time) {
	a.requests.giveBack(now, 1)
	a.tokens.giveBack(now, tokens)
	a.report(h, now)
}

func (l limiter) take(h http.Header, now time.Time, n int) error {
	if l.AllowN(now, n) {
		return nil
	}
	missing := max(0, float64(n)-l.TokensAt(now))
	wait := time.Duration(missing / float64(l.Limit()) * float64(time.Second))
	h.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	return failure(http.StatusTooManyRequests, "rate_limit_error", "rate_limit_exceeded",
		fmt.Sprintf("The limit is %d %s in a minute; try again in %v.", l.Burst(), l.unit, wait.Round(time.Millisecond)))
}

// giveBack takes -n from the limiter, which increases the allowance by n, but not above its limit.
func (l limiter) giveBack(now time.Time, n int) { l.AllowN(now, -n) }

func (a *allowance) report(h http.Header, now time.Time) {
	for _, l := range []limiter{a.requests, a.tokens} {
		if l.Limit() == rate.Inf {
			continue
		}
		left := max(0, l.TokensAt(now))
		h.Set("X-Ratelimit-Limit-"+l.unit, strconv.Itoa(l.Burst()))
		h.Set("X-Ratelimit-Remaining-"+l.unit, strconv.Itoa(int(left)))
		full := time.Duration((float64(l.Burst()) - left) / float64(l.Limit()) * float64(time.Second))
		h.Set("X-Ratelimit-Reset-"+l.unit, full.Round(time.Millisecond).String())
	}
}
