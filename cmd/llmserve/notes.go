package main

import (
	"fmt"
	"io"
	"strings"

	"llmmemory/internal/terminal"
)

// computes names the GPU or the kernels that compute the model, and the type of the activations.
func (l *loaded) computes(o *modelOptions) string {
	if l.device != nil {
		return fmt.Sprintf("device: %v; activations: %s", o.device.gpu, l.device.Type())
	}
	return fmt.Sprintf("kernels: %s; activations: %s", l.kernels(), o.activations)
}

// notes prints what a user may not expect of the model: why it runs on the CPU, weights that are converted,
// and parts of its files that are not used or missing.
func (l *loaded) notes(to io.Writer, o *modelOptions) {
	if o.device.why != "" {
		fmt.Fprintf(to, "  on the CPU: %s\n", o.device.why)
	}
	if l.device != nil {
		for _, note := range l.device.Notes() {
			fmt.Fprintf(to, "  %s\n", note)
		}
	}
	if n := l.config.UnusedWindow; n > 0 {
		fmt.Fprintf(to, "  not used, as in llama.cpp: the file's sliding window of %d tokens\n", n)
	}
	if l.noSplit {
		fmt.Fprintln(to, "  warning: the file has no tokenizer.ggml.pre; text is split as by \"default\", as in llama.cpp, which "+
			"can make answers worse: convert the model again")
	}
	const maxNames = 3 // that are shown
	names, more := l.workers[0].Model.Unused(), ""
	if n := len(names) - maxNames; n > 0 {
		names, more = names[:maxNames], fmt.Sprintf(" and %d more", n)
	}
	if len(names) > 0 {
		fmt.Fprintf(to, "  not used: the tensors %s%s\n", terminal.VisibleName(strings.Join(names, ", ")), more)
	}
}

func (l *loaded) ends(ids []int32) string {
	if len(ids) == 0 {
		return "no token of the model ends an answer; max_tokens and stop do"
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = fmt.Sprintf("%q (%d)", l.tokenizer.Text(id), id)
	}
	return "an answer ends with " + strings.Join(names, ", ")
}
