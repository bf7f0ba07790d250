package plans

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"llmmemory/internal/simulation/capacity"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/terminal"
)

// percent formats a gain: "+38 %".
func percent(gain float64) string {
	return fmt.Sprintf("%+.0f %%", math.Round(100*gain)+0) // +0: no minus before a zero
}

// rate formats requests/s with three significant digits.
func rate(v float64) string {
	if v <= 0 {
		return "0"
	}
	return strconv.FormatFloat(v, 'f', max(0, 2-int(math.Floor(math.Log10(v)))), 64)
}

// seeds describes the seeds, as in "seeds 1-3", or returns "one trace".
func (l Load) seeds() string {
	switch n := len(l.Seeds); {
	case n == 1 && l.Own > 0:
		return "one trace"
	case n == 1:
		return fmt.Sprintf("seed %d", l.Seeds[0])
	default:
		return fmt.Sprintf("seeds %d-%d", l.Seeds[0], l.Seeds[n-1])
	}
}

// change returns the change with the greatest gain of its kind.
func (r *Report) change(kind Kind) Change {
	i := slices.IndexFunc(r.Limits, func(c Change) bool { return c.Is == kind })
	return r.Limits[i]
}

// verdict returns the answer in one line.
func (r *Report) verdict() string {
	c := r.Capacity
	if c.Rate == 0 {
		p := c.Seeds[0].At()
		why := "requests wait forever, or are refused"
		if p.Result != nil && p.Result.Answered == p.Result.Arrived {
			why = "alone they have " + r.values(p)
		}
		return fmt.Sprintf("%s: no rate holds %s; even requests that are alone miss it: %s", r.Setup, r.SLO, why)
	}
	trace := ""
	if r.Load.Own > 0 {
		trace = fmt.Sprintf(", %s times the trace's own", rate(c.Rate/r.Load.Own))
	}
	spread := r.Load.seeds()
	if len(c.Seeds) > 1 {
		spread += fmt.Sprintf(", whose shorter runs hold %s to %s", rate(c.Low), rate(c.High))
	}
	answer := rate(c.Rate) + " requests/s"
	if r.Range != nil {
		answer = r.Range.with(c.Rate)
	}
	return fmt.Sprintf("%s: %s under %s (%s%s); %s", r.Setup, answer, r.SLO, spread, trace, r.limited())
}

// limited describes the limit and the gain of more memory.
func (r *Report) limited() string {
	memory := r.change(KVMemory)
	also := ""
	if memory.Name != r.Limit {
		also = fmt.Sprintf("; %s gives %s", memory.Name, percent(memory.Gain))
	}
	also += r.settings()
	if r.Limit == "" {
		return "nothing alone raises it under every seed" + also
	}
	i := slices.IndexFunc(r.Limits, func(c Change) bool { return c.Name == r.Limit })
	limit := r.Limits[i]
	contrast := ""
	if limit.Is == Time && memory.GainLow <= r.Capacity.Precision {
		contrast = ", not memory"
	}
	return fmt.Sprintf("limited by %s%s: %s gives %s%s", limit.Is, contrast, limit.Name, percent(limit.Gain), also)
}

// settings lists the settings that raise the capacity, other than the limit: changing one needs no new hardware.
func (r *Report) settings() (text string) {
	for _, c := range r.Limits {
		if (c.Is == Sequences || c.Is == Budget) && c.Name != r.Limit && c.Trouble == "" && c.GainLow > r.Capacity.Precision {
			text += fmt.Sprintf("; %s, a setting, gives %s", c.Name, percent(c.Gain))
		}
	}
	return text
}

func (r *Report) values(p capacity.Point) string {
	var all []string
	for i, o := range r.slo {
		all = append(all, o.Of()+" "+seconds(float64(p.Values[i])))
	}
	return strings.Join(all, ", ")
}

func seconds(v float64) string {
	switch {
	case math.IsInf(v, 0):
		return "without end"
	case v < 1:
		return fmt.Sprintf("%.3g ms", 1000*v)
	default:
		return fmt.Sprintf("%.3g s", v)
	}
}

// writeAnswer writes the rate, its latency, its limit, and the source of the times.
func (r *Report) writeAnswer(w io.Writer) {
	answer, limits, _ := strings.Cut(r.Verdict, "; ")
	fmt.Fprintf(w, "%s\n", strings.Join(terminal.Wrap(answer, 2), "\n  "))
	if r.Capacity.Rate > 0 && r.atCapacity().Result != nil {
		fact(w, "latency", r.intervals())
		fact(w, "lasts", r.lasts())
	}
	name := "limit"
	for part := range strings.SplitSeq(strings.TrimPrefix(limits, "limited by "), "; ") {
		if part != "" {
			fact(w, name, part)
		}
		name = ""
	}
	if r.Range != nil {
		fact(w, "rests on", r.Range.Rests)
	}
	fmt.Fprintln(w)
}

// Write writes the report for a terminal: the answer first. If verbose, it includes the constants of the times.
func (r *Report) Write(out io.Writer, verbose bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	r.writeAnswer(w)
	r.writeFacts(w, verbose)
	if r.Capacity.Rate > 0 {
		r.writeCurve(w)
		r.writeChanges(w, "with one change at a time", r.Limits)
		r.writeChanges(w, "block size, of the same bytes", r.BlockSizes)
		r.writeChanges(w, "system", r.Systems)
		r.writeTake(w)
	}
	if r.Target != nil {
		r.writeTarget(w)
	}
	return w.Flush()
}

// rooflines states the errors of computed times, from cost/README.md.
const rooflines = "computed from data sheets: where there were measurements to compare with, up to a third off for " +
	"decodes and up to half for prompts (internal/simulation/cost/README.md)"

// fact writes a name and a text, wrapped for a terminal.
func fact(w io.Writer, name, text string) {
	for _, line := range terminal.Wrap(text, len("iterations  ")) {
		fmt.Fprintf(w, "%s\t%s\n", name, line)
		name = ""
	}
}

// String describes the memory in one line.
func (m Memory) String() string {
	text := fmt.Sprintf("%.4g KiB a token, %d blocks of %d tokens, %d slots, %.1f GB; %d sequences of mean length fit",
		float64(m.TokenBytes)/1024, m.Blocks, m.BlockSize, m.Slots, float64(m.Bytes)/1e9, m.Fit)
	if m.Utilization > 0 {
		text += fmt.Sprintf("; %g of each GPU's memory may be used", m.Utilization)
	}
	return text
}

func (r *Report) writeFacts(w io.Writer, verbose bool) {
	l, m := r.Load, r.Memory
	fact(w, "requests", l.About)
	runs := fmt.Sprintf("%d requests", l.Requests)
	if l.Requests == 0 {
		runs = "as many requests as it takes"
	}
	text := fmt.Sprintf("runs of %s, %s, means %.0f and %.0f tokens", runs, l.seeds(), l.Prompt, l.Output)
	if l.Own > 0 {
		text += fmt.Sprintf("; they come at %s requests/s", rate(l.Own))
	}
	if l.TooLong > 0 {
		text += fmt.Sprintf("; %d too long for %d tokens left out", l.TooLong, r.Scenario.Server.MaxModelLen)
	}
	if l.LeftOut > 0 {
		text += fmt.Sprintf("; %.2g %% are too long for %d tokens and left out, and rates are those of the others",
			100*l.LeftOut, r.Scenario.Server.MaxModelLen)
	}
	fact(w, "", text)
	if text := r.Scenario.Decoding.String(); text != "" {
		fact(w, "answers", text)
	}
	fact(w, "memory", m.String())
	cost := r.Cost
	if r.Range != nil { // writeAnswer wrote it
		cost = strings.Replace(cost, r.Range.Rests+"; ", "", 1)
	}
	fact(w, "iterations", cost)
	if verbose {
		fact(w, "", r.Constants)
	}
	if strings.Contains(r.Cost, "chosen by hand") {
		fact(w, "", rooflines)
	}
	v := r.Scenario.Server
	fmt.Fprintf(w, "server\t%s, at most %d sequences and %d tokens of an iteration\n", policyOf(v), v.MaxNumSeqs,
		v.MaxNumBatchedTokens)
	if r.Capacity.Rate == 0 {
		return
	}
	p := r.atCapacity()
	if p.Result == nil {
		return
	}
	a := p.Result.Window
	fmt.Fprintf(w, "at %s/s\tbatch of %.1f, %.1f wait; iterations of %.1f ms; %d preemptions\n",
		rate(p.Rate), a.Requests, a.Waiting, a.Milli, p.Result.Recomputed+p.Result.Swapped)
	if r.system.Memory != sim.Static {
		fmt.Fprintf(w, "\tmemory: %.1f %% tokens, %.1f %% reserved, %.1f %% internal, %.1f %% external or free\n",
			100*a.Tokens, 100*a.Reservation, 100*a.Internal, 100*a.External)
	}
	if n := p.Result.Refused + p.Result.Dropped; n > 0 {
		fact(w, "", fmt.Sprintf("%d requests refused, which do not count: %s", n, p.Result.Refusal))
	}
	fact(w, "search", r.searched())
}

// atCapacity returns the confirming run of the first seed that has a result.
func (r *Report) atCapacity() capacity.Point {
	i := slices.IndexFunc(r.Capacity.Confirmed, func(p capacity.Point) bool { return p.Result != nil })
	return r.Capacity.Confirmed[max(0, i)]
}

// lasts says for how long the rate held, and under how many seeds.
func (r *Report) lasts() string {
	c := r.Capacity
	p := r.atCapacity()
	if c.Tried == 1 {
		return fmt.Sprintf("this rate held for %.0f s of arrivals", p.Span)
	}
	seeds := fmt.Sprintf("all %d seeds", c.Tried)
	if c.Held < c.Tried {
		seeds = fmt.Sprintf("%d of %d seeds", c.Held, c.Tried)
	}
	return fmt.Sprintf("this rate, or a higher one, held for %.0f s of arrivals under %s; most of them hold %s/s, and "+
		"do not hold 3 %% more", p.Span, seeds, rate(c.Most))
}

// intervals returns the values of the objectives with their confidence intervals.
func (r *Report) intervals() string {
	p := r.atCapacity()
	var all []string
	rough := ""
	for i, o := range r.slo {
		v := p.Intervals[i]
		uncertainty := interval(v)
		if r.Range != nil {
			uncertainty = r.Range.latency(float64(p.Values[i]), o.Metric == capacity.TTFT) + "; by chance alone " + uncertainty
		}
		all = append(all, fmt.Sprintf("%s %s (%s)", o.Of(), seconds(float64(p.Values[i])), uncertainty))
		if v.Rough {
			rough = ". Rough: too few independent answers for 95 %, the true value may be farther away"
		}
	}
	return strings.Join(all, ", ") + rough
}

func interval(v capacity.Interval) string {
	level := "95 %"
	if v.Rough {
		level = "rough"
	}
	if math.IsInf(float64(v.High), 1) {
		return fmt.Sprintf("%s: at least %s", level, seconds(float64(v.Low)))
	}
	return fmt.Sprintf("%s: %s to %s", level, seconds(float64(v.Low)), seconds(float64(v.High)))
}

// searched says how many rates were tried, and whether a rate above a failed one held.
func (r *Report) searched() string {
	n, above := 0, 0
	for _, s := range r.Capacity.Seeds {
		n += len(s.Points)
		if !s.Monotone {
			above++
		}
	}
	text := fmt.Sprintf("%d rates tried, to %.2g %%; ", n, 100*r.Capacity.Precision)
	if above == 0 {
		return text + "no rate above a failed one held"
	}
	return text + fmt.Sprintf("under %d of %d seeds a rate above a failed one held: the lowest failed rate counts", above,
		len(r.Capacity.Seeds))
}

// writeChanges writes a table of changes. The title heads its first column.
func (r *Report) writeChanges(w io.Writer, title string, all []Change) {
	fmt.Fprintf(w, "\n%s\trequests/s\tgain", title)
	if len(r.Load.Seeds) > 1 {
		fmt.Fprint(w, "\tunder all seeds")
	}
	fmt.Fprintln(w)
	for _, c := range all {
		switch {
		case c.Trouble != "":
			fmt.Fprintf(w, "%s\t-\t\t%s\n", c.Name, c.Trouble)
		case c.Base:
			fmt.Fprintf(w, "%s\t%s\tas asked\n", c.Name, rate(c.Rate))
		case len(c.rates) == 1:
			fmt.Fprintf(w, "%s\t%s\t%s\n", c.Name, rate(c.Rate), percent(c.Gain))
		default:
			fmt.Fprintf(w, "%s\t%s\t%s\t%s to %s\n", c.Name, rate(c.Rate), percent(c.Gain), percent(c.GainLow),
				percent(c.GainHigh))
		}
	}
}

func (r *Report) writeTake(w io.Writer) {
	t := r.Take
	gain := percent(t.Both.Gain) + " over what was asked"
	if t.Both.Base {
		gain = "as asked"
	}
	fmt.Fprintf(w, "\ntake\tblock size %d and %s: %s requests/s, %s\n", t.BlockSize, t.System, rate(t.Both.Rate), gain)
	for text := range strings.SplitSeq(t.Reason+"; "+kernels, "; ") {
		fact(w, "", text)
	}
}

// kernels qualifies the comparison of block sizes.
const kernels = "small blocks cost an attention kernel time, which is not modelled: sizes below 16 show only what " +
	"memory gains"

// memory says how much memory the target needs.
func (t *Target) memory(m Memory) string {
	blocks := fmt.Sprintf("%d blocks of %d (%.1f GB)", t.Blocks, m.BlockSize, float64(t.Bytes)/1e9)
	switch {
	case t.Holds && t.Blocks > 0:
		return fmt.Sprintf("one server is enough; by shorter runs %s suffice", blocks)
	case t.Holds:
		return "one server is enough"
	case t.Near:
		return "one server is nearly enough; shorter runs do not show that it needs more memory"
	case t.Blocks > 0:
		return fmt.Sprintf("one server is not enough; by shorter runs it is with %s instead of %d", blocks, m.Blocks)
	case t.MostBlocks > 0 && m.Blocks > 0:
		return fmt.Sprintf("one server is not enough, even with %d times its memory", t.MostBlocks/m.Blocks)
	}
	return "one server is not enough"
}

func (r *Report) writeTarget(w io.Writer) {
	t := r.Target
	fmt.Fprintln(w)
	fact(w, fmt.Sprintf("for %s/s", rate(t.Rate)), t.memory(r.Memory))
	for _, s := range t.Servers {
		fact(w, "", s.String())
	}
	if len(t.Servers) > 0 && t.Servers[0].Replicas > 1 {
		fmt.Fprint(w, "\tservers get requests at random, each its share\n")
	}
	if t.Note != "" {
		fact(w, "", t.Note)
	}
}
