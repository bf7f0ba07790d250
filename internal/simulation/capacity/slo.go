package capacity

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"llmmemory/internal/simulation/workload"
)

// ErrSLO is wrapped when an objective cannot be read.
var ErrSLO = errors.New("bad objective")

const sloForms = "want 0.5s/token (normalized latency), ttft<2s (first token), tpot<100ms (each further token) or " +
	"e2e<30s (whole answer), each followed by @mean, @p50, @p99.9, @max and so on (default @mean); several with commas between them"

// maxPercent is the highest percentile that an objective may limit. The maximum, p100, is also allowed. Percentiles
// between the two are not, because their confidence intervals need too many requests.
const maxPercent = 99.99

// A Metric is one latency of a request.
type Metric int

const (
	Normalized Metric = iota // time from arrival to end, divided by the tokens of the answer
	TTFT                     // time from arrival to the first token
	TPOT                     // mean time between tokens, for answers with more than one
	E2E                      // time from arrival to end
)

var metricNames = []string{"normalized", "ttft", "tpot", "e2e"}

func (m Metric) String() string { return metricNames[m] }

// An Objective limits the mean or a quantile of a latency over all requests.
type Objective struct {
	Metric Metric
	Level  float64 // the quantile, at most 1; 0 means the mean
	Limit  float64 // s, above 0
}

// An SLO is a service level objective. It holds if all of its objectives hold.
type SLO []Objective

// ParseSLO parses objectives such as "0.5s/token, ttft<2s@p99". The error wraps ErrSLO and lists the forms.
func ParseSLO(text string) (SLO, error) {
	var slo SLO
	for item := range strings.SplitSeq(text, ",") {
		o, err := parseObjective(strings.TrimSpace(item))
		if err != nil {
			return nil, fmt.Errorf("%w %q: %w; %s", ErrSLO, item, err, sloForms)
		}
		slo = append(slo, o)
	}
	return slo, nil
}

func parseObjective(item string) (o Objective, err error) {
	item, level, leveled := strings.Cut(item, "@")
	if leveled {
		if o.Level, err = parseLevel(strings.TrimSpace(level)); err != nil {
			return o, err
		}
	}
	name, limit, compared := strings.Cut(item, "<")
	if !compared {
		perToken := false
		if limit, perToken = strings.CutSuffix(strings.TrimSpace(item), "/token"); !perToken {
			return o, errors.New("neither metric<time nor time/token")
		}
	} else {
		i := slices.Index(metricNames, strings.TrimSpace(name))
		if i <= int(Normalized) {
			return o, fmt.Errorf("no metric %q", strings.TrimSpace(name))
		}
		o.Metric = Metric(i)
	}
	d, err := time.ParseDuration(strings.ReplaceAll(limit, " ", ""))
	if err != nil {
		return o, fmt.Errorf("no time %q, such as 0.5s or 100ms", strings.TrimSpace(limit))
	}
	if o.Limit = d.Seconds(); o.Limit <= 0 {
		return o, fmt.Errorf("a limit of %v must be above 0", d)
	}
	return o, nil
}

func parseLevel(text string) (float64, error) {
	switch digits, percentile := strings.CutPrefix(text, "p"); {
	case text == "mean":
		return 0, nil
	case text == "max":
		return 1, nil
	case percentile:
		p, err := strconv.ParseFloat(digits, 64)
		switch {
		case err != nil || !(p > 0 && p <= 100):
		case p > maxPercent && p < 100:
			return 0, fmt.Errorf("%s takes %d requests in every run: want at most p%v, or max", text, minValues(p/100),
				maxPercent)
		default:
			return p / 100, nil
		}
	}
	return 0, fmt.Errorf("%q is no mean, max, or percentile above p0 and up to p100", text)
}

// Of returns the objective's metric and quantile, as in "ttft p99".
func (o Objective) Of() string {
	switch o.Level {
	case 0:
		return o.Metric.String() + " mean"
	case 1:
		return o.Metric.String() + " max"
	}
	return o.Metric.String() + " p" + number(o.percent())
}

func (o Objective) missReason() string { return o.Of() + " is above its limit" }

// percent returns Level in percent. It removes the rounding error that dividing the percentage by 100 caused.
func (o Objective) percent() float64 { return math.Round(o.Level*1e8) / 1e6 }

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// String returns a form that ParseSLO reads.
func (o Objective) String() string {
	s := o.Metric.String() + "<" + time.Duration(math.Round(o.Limit*1e9)).String()
	if o.Metric == Normalized {
		s = number(o.Limit) + "s/token"
	}
	if o.Level == 0 {
		return s
	}
	return s + "@" + strings.Fields(o.Of())[1]
}

// String returns a form that ParseSLO reads.
func (s SLO) String() string {
	var all []string
	for _, o := range s {
		all = append(all, o.String())
	}
	return strings.Join(all, ", ")
}

func (s SLO) limits(m Metric) bool {
	return slices.ContainsFunc(s, func(o Objective) bool { return o.Metric == m })
}

// judgeable returns an error that wraps ErrLoad if the SLO limits TPOT but every answer has one token.
func (s SLO) judgeable(requests []workload.Request) error {
	if !s.limits(TPOT) || slices.ContainsFunc(requests, func(r workload.Request) bool { return r.Output > 1 }) {
		return nil
	}
	return fmt.Errorf("%w: every answer has one token, so there is no time between tokens for tpot to be judged by; "+
		"leave tpot out", ErrLoad)
}

// Times returns the SLO with all limits multiplied by a factor. It helps to plan for a faster server. Suppose that
// another server does everything twice as fast as this one. If this server sustains the rate r under Times(2), the
// other server sustains the rate 2r under s.
func (s SLO) Times(factor float64) SLO {
	s = slices.Clone(s)
	for i := range s {
		s[i].Limit *= factor
	}
	return s
}
