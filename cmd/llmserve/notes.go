package main

import (
	"fmt"
	"io"
	"strings"

	"llmmemory/internal/terminal"
)

// notes prints which parts of the model's files are not used or missing.
func (l *loaded) notes(to io.Writer) {
	if n := l.config.UnusedWindow; n > 0 {
		fmt.Fprintf(to, "  not used, as in llama.cpp: the file's sliding window of %d tokens\n", n)
	}
	if l.noSplit {
		fmt.Fprintln(to, "  warning: the file has no tokenizer.ggml.pre; text is split as by \"default\", as in llama.cpp, which "+
			"can make answers worse: convert the model again")
	}
	const most = 3 // names that are shown
	names, more := l.workers[0].Model.Unused(), ""
	if n := len(names) - most; n > 0 {
		names, more = names[:most], fmt.Sprintf(" and %d more", n)
	}
	if len(names) > 0 {
		fmt.Fprintf(to, "  not used: the tensors %s%s\n", terminal.VisibleName(strings.Join(names, ", ")), more)
	}
}

// ends returns a sentence about the tokens that end an answer.
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
