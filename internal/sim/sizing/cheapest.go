package sizing

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"llmmemory/internal/sim/capacity"
	"llmmemory/internal/sim/cost"
	"llmmemory/internal/sim/scenario"
)

// An Offer is servers of one kind that hold the objective.
type Offer struct {
	GPU       string  `json:"gpu"`
	Workers   int     `json:"workers"`
	Rate      float64 `json:"rate"` // requests/s of one server
	Servers   int     `json:"servers"`
	GPUs      int     `json:"gpus"` // of all servers
	Hour      float64 `json:"dollarsPerHour"`
	Million   float64 `json:"dollarsPerMillionTokens"` // of prompts and answers, at the rate that is wanted
	KWh       float64 `json:"kWhPerMillionTokens"`     // at most
	Times     string  `json:"timesOf"`                 // the engine that iterations are as long as
	Confirmed bool    `json:"confirmed"`               // the rate lasts for an hour under all seeds

	// dollars per hour if iterations take as long as the margin leaves open; 0: not known
	HourLow  float64 `json:"dollarsPerHourLow,omitempty"`
	HourHigh float64 `json:"dollarsPerHourHigh,omitempty"`

	Trouble string `json:"trouble,omitempty"` // why there is no offer

	plan   *scenario.Plan
	load   *capacity.Load
	tokens float64 // of a request
	price  cost.Price
}

// Cheapest finds what a rate of requests costs at least on each GPU of a list, with 1 to 8
// GPUs a server, from the cheapest up. The first offer is confirmed as plans are: others are ranked by
// shorter runs, until none of them can be cheaper.
func Cheapest(ctx context.Context, q Question, gpus []string, prices cost.Prices) ([]Offer, error) {
	q.Seeds = max(1, q.Seeds)
	s, err := newSizer(q)
	if err != nil {
		return nil, err
	}
	if !(q.Target > 0 && q.Target <= mostTarget) {
		return nil, fmt.Errorf("%w: a target of %v requests a second: want a number above 0, and at most %.0f",
			scenario.ErrScenario, q.Target, float64(mostTarget))
	}
	of := make([]cost.Price, len(gpus))
	for i, gpu := range gpus {
		g, err := cost.OpenGPU(gpu)
		if err != nil {
			return nil, err
		}
		of[i] = prices.GPUs[g.Name] // which a file's is not
	}
	var all []Offer
	for i, gpu := range gpus {
		for w := 1; w <= mostWorkers; w *= 2 {
			o := Offer{GPU: gpu, Workers: w, price: of[i]}
			if err := s.offer(ctx, &o); err != nil {
				return nil, err
			}
			all = append(all, o)
			if o.Trouble == "" && o.Servers <= 1 {
				break // more GPUs a server would only cost more
			}
		}
	}
	return s.confirmCheapest(ctx, all)
}

// offer finds what one kind of server gives.
func (s *sizer) offer(ctx context.Context, o *Offer) error {
	if o.price.Dollars == 0 {
		o.Trouble = NoPrice
		return nil
	}
	scene := s.Scenario
	scene.GPU, scene.Workers = o.GPU, o.Workers
	var err error
	if o.plan, err = scenario.Open(scene); err != nil {
		return o.refuse(err, doesNotFit(err))
	}
	o.Times = o.plan.Scenario.Engine
	if o.load, err = capacity.NewLoad(o.plan, s.Seeds); err != nil {
		return err
	}
	prompt, output := o.load.Means()
	o.tokens = prompt + output
	found, err := o.load.Find(ctx, o.plan, s.SLO, s.options(capacity.CompareHorizon, nil))
	switch {
	case err != nil:
		return o.refuse(err, unanswered(err))
	case found.Rate == 0:
		o.Trouble = "even requests that are alone miss the objective"
		return nil
	}
	o.value(s.Target, found.Rate)
	return nil
}

// refuse makes an error the reason why there is no offer, or returns it.
func (o *Offer) refuse(err error, isReason bool) error {
	if !isReason {
		return err
	}
	o.Trouble = err.Error()
	return nil
}

// value is what servers with a rate cost.
func (o *Offer) value(target, rate float64) {
	o.Rate = rate
	o.Servers = int(math.Ceil(target/rate - 1e-9))
	o.GPUs = o.Servers * o.plan.Setup.GPUs()
	o.Hour = float64(o.GPUs) * o.price.Dollars
	million := 1e6 / (target * o.tokens) / 3600 // hours that a million tokens take
	o.Million = o.Hour * million
	o.KWh = float64(o.GPUs) * o.price.Watts / 1000 * million
	if m := o.plan.Setup.Margin(); m != nil {
		hour := func(times float64) float64 {
			return math.Ceil(target*times/rate-1e-9) * float64(o.plan.Setup.GPUs()) * o.price.Dollars
		}
		o.HourLow, o.HourHigh = hour(m.Least), hour(m.Most)
	}
}

// within returns a number for an hour, with the range of the hour's dollars: money and energy have the same.
func (o *Offer) within(format string, v float64) string {
	text := fmt.Sprintf(format, v)
	if o.HourHigh == 0 || o.Hour == 0 {
		return text
	}
	return fmt.Sprintf("%s ("+format+" to "+format+")", text, v*o.HourLow/o.Hour, v*o.HourHigh/o.Hour)
}

// confirmCheapest confirms the cheapest offer. If that makes it dearer than another one, it goes on
// with that one. Of offers with equal prices, the one with the higher rate comes first.
func (s *sizer) confirmCheapest(ctx context.Context, all []Offer) ([]Offer, error) {
	for {
		slices.SortStableFunc(all, dearer)
		o := &all[0]
		if o.Trouble != "" || o.Confirmed {
			return all, nil
		}
		found, err := o.load.Find(ctx, o.plan, s.SLO, s.options(capacity.SearchHorizon, nil))
		if err == nil && found.Rate > 0 {
			err = o.load.Confirm(ctx, o.plan, s.SLO, s.Lasts, s.pool, &found)
		}
		switch {
		case err != nil:
			if err := o.refuse(err, unanswered(err)); err != nil {
				return nil, err
			}
		case found.Rate == 0:
			o.Trouble = "no rate lasts"
		default:
			o.value(s.Target, found.Rate)
			o.Confirmed = true
		}
	}
}

// dearer orders offers.
func dearer(a, b Offer) int {
	trouble := func(o Offer) int { return min(len(o.Trouble), 1) }
	return cmp.Or(trouble(a)-trouble(b), cmp.Compare(a.Hour, b.Hour), a.GPUs-b.GPUs,
		cmp.Compare(float64(b.Servers)*b.Rate, float64(a.Servers)*a.Rate))
}

// Missing returns why none of the offers is an answer, nil if one is.
func Missing(q Question, all []Offer) error {
	switch {
	case all[0].Trouble == "":
		return nil
	case !slices.ContainsFunc(all, func(o Offer) bool { return o.Trouble != NoPrice }):
		return fmt.Errorf("%s: %s", strings.Join(withoutPrice(all), ", "), NoPrice)
	}
	return fmt.Errorf("nothing holds %s", q.SLO)
}

// withoutPrice returns the GPUs that were not tried.
func withoutPrice(all []Offer) []string {
	var gpus []string
	for _, o := range all {
		if o.Trouble == NoPrice && !slices.Contains(gpus, o.GPU) {
			gpus = append(gpus, o.GPU)
		}
	}
	return gpus
}

// WriteOffers writes offers for a terminal: the answer first.
func WriteOffers(out io.Writer, q Question, all []Offer, prices cost.Prices) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	best := all[0]
	answered := best.Trouble == ""
	if answered {
		fmt.Fprintf(w, "%d x %s, %d to a server: $%s an hour for %s requests/s under %s\n\n",
			best.GPUs, best.GPU, best.Workers, best.within("%.2f", best.Hour), rate(q.Target), q.SLO)
		fmt.Fprint(w, "GPUs\teach server\tservers\t$/hour\t$/M tokens\tkWh/M tokens\ttimes of\trate is\n")
	} else {
		fmt.Fprintf(w, "no answer: %v\n\n", Missing(q, all))
	}
	several := false // engines
	for _, o := range all {
		if o.Trouble != "" {
			continue
		}
		state := "from shorter runs"
		if o.Confirmed {
			state = "confirmed"
		}
		several = several || o.Times != best.Times
		fmt.Fprintf(w, "%d x %s\t%s/s with %d\t%d\t%s\t%s\t%s\t%s\t%s\n", o.GPUs, o.GPU, rate(o.Rate), o.Workers,
			o.Servers, o.within("%.2f", o.Hour), o.within("%.3f", o.Million), o.within("%.3f", o.KWh), o.Times, state)
	}
	if answered {
		fmt.Fprintln(w)
		fact(w, "iterations", "of the first: "+best.plan.Model.Describe())
	}
	if several {
		fact(w, "times", "of several engines, so the table compares these as well as the GPUs: --engine NAME takes one "+
			"for all; "+scenario.DataSheet+" is vLLM of 2023, up to 2 times slower than newer releases")
	}
	if prices.Source != "" {
		fact(w, "prices", prices.Source)
	}
	watts := "at most: of the GPUs' watts, without the computers around them"
	if prices.WattsSource != "" {
		watts += "; watts: " + prices.WattsSource
	}
	fact(w, "kWh", watts)
	for _, o := range all {
		if o.Trouble != "" && o.Trouble != NoPrice {
			fact(w, "no offer", fmt.Sprintf("%d x %s: %s", o.Workers, o.GPU, o.Trouble))
		}
	}
	if gpus := withoutPrice(all); len(gpus) > 0 {
		fact(w, "left out", strings.Join(gpus, ", ")+": "+NoPrice)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, "Servers get requests at random, each its share.")
	return err
}
