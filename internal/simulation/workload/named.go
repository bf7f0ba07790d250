package workload

import (
	"fmt"
	"slices"
	"strings"
)

// Trust says where the shape of a workload's lengths comes from.
type Trust string

// From most to least trustworthy.
const (
	Measured Trust = "measured" // drawn from quantiles of the real lengths
	Inferred Trust = "inferred" // a shape that fits what little is known of them
	Modelled Trust = "modelled" // built from measured parts by rules that are guesses
	Assumed  Trust = "assumed"  // a guess
)

// Info describes a named workload.
type Info struct {
	Name        string
	Trust       Trust
	Description string // one line
}

// Names returns the names that Named accepts.
func Names() []string {
	var names []string
	for _, w := range all {
		names = append(names, w.Name)
	}
	return names
}

// Named returns the synthetic workload with the given name. The error wraps ErrUnknown and lists the known names.
func Named(name string) (Lengths, Info, error) {
	i := slices.IndexFunc(all, func(w known) bool { return w.Name == name })
	if i < 0 {
		return nil, Info{}, fmt.Errorf("%w %q; known are %s", ErrUnknown, name, strings.Join(Names(), ", "))
	}
	return all[i].lengths(), all[i].Info, nil
}

type known struct {
	Info
	lengths func() Lengths
}

var all = []known{
	{Info{"sharegpt", Measured, "ShareGPT first rounds, prompt + output below 2,048 tokens of OPT: means 161 and 338"},
		func() Lengths { return shareGPT() }},
	{Info{"alpaca", Inferred, "Alpaca instructions: means 19 and 58 tokens, shape inferred from maxima of batches"},
		func() Lengths { return alpaca{} }},
	{Info{"alpaca-inputs", Inferred, "Alpaca with other prompts of the same mean: short ones, and 40 % with an input"},
		func() Lengths { return alpacaInputs{} }},
	{Info{"chat", Modelled, "conversations cut to their last 1,024 tokens, rounds drawn from ShareGPT's first ones, " +
		"their number a guess (Fig. 17)"}, func() Lengths { return chat{shareGPT()} }},
	{Info{"wmt16-1shot", Assumed,
		"translation with one example, 80 shared tokens in front; lengths of sentences are an assumption (Fig. 16)"},
		func() Lengths { return prefixed{wmt16{}, 80} }},
	{Info{"wmt16-5shot", Assumed,
		"translation with five examples, 341 shared tokens in front; lengths of sentences are an assumption (Fig. 16)"},
		func() Lengths { return prefixed{wmt16{}, 341} }},
}
