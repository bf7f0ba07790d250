package plans

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/terminal"
)

// Write writes the report as text for a terminal, with the answer first. verbose adds the constants of the
// cost model.
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

func fact(w io.Writer, name, text string) {
	for _, line := range terminal.Wrap(text, len("iterations  ")) {
		fmt.Fprintf(w, "%s\t%s\n", name, line)
		name = ""
	}
}

func writeParts(w io.Writer, name, text string) {
	for part := range strings.SplitSeq(text, "; ") {
		if part != "" {
			fact(w, name, part)
		}
		name = ""
	}
}

func (r *Report) writeAnswer(w io.Writer) {
	answer, limits, _ := strings.Cut(r.Verdict, "; ")
	fmt.Fprintf(w, "%s\n", strings.Join(terminal.Wrap(answer, 2), "\n  "))
	if r.hasRun() {
		fact(w, "latency", r.text("latency"))
		fact(w, "lasts", r.text("lasts"))
	}
	writeParts(w, "limit", strings.TrimPrefix(limits, "limited by "))
	if r.Range != nil {
		fact(w, "rests on", r.Range.Rests)
	}
	fmt.Fprintln(w)
}

func (r *Report) hasRun() bool { return r.Capacity.Rate > 0 && r.atCapacity().Result != nil }

// rooflines states the errors of computed times, from cost/README.md.
const rooflines = "computed from data sheets: where there were measurements to compare with, up to about a third off for " +
	"decodes and about half for prompts (internal/simulation/cost/README.md)"

func (r *Report) writeFacts(w io.Writer, verbose bool) {
	fact(w, "requests", r.Load.About)
	fact(w, "", r.text("requests"))
	if text := r.Scenario.Decoding.String(); text != "" {
		fact(w, "answers", text)
	}
	fact(w, "memory", r.Memory.String())
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
	if !r.hasRun() {
		return
	}
	p := r.atCapacity()
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
	fact(w, "search", r.text("search"))
}

// writeChanges writes a table of changes. title is the head of the column with their names.
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

// kernels qualifies the comparison of block sizes.
const kernels = "small blocks cost an attention kernel time, which is not modelled: sizes below 16 show only what " +
	"memory gains"

func (r *Report) writeTake(w io.Writer) {
	t := r.Take
	gain := percent(t.Both.Gain) + " over what was asked"
	if t.Both.Base {
		gain = "as asked"
	}
	fmt.Fprintf(w, "\ntake\tblock size %d and %s: %s requests/s, %s\n", t.BlockSize, t.System, rate(t.Both.Rate), gain)
	writeParts(w, "", t.Reason+"; "+kernels)
}

func (r *Report) writeTarget(w io.Writer) {
	t := r.Target
	fmt.Fprintln(w)
	fact(w, fmt.Sprintf("for %s/s", rate(t.Rate)), r.text("memory for the target"))
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
