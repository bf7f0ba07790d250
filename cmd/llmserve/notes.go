package main

import (
	"fmt"
	"io"
	"strings"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/terminal"
)

// deviceText describes the device that computes the model and the type of the activations. For a GPU that has not
// failed, it also says how much memory the weights, the batches, and the keys and values use, and how much is free.
func (l *loaded) deviceText(o *modelOptions, e *engine.Engine) string {
	if l.device == nil {
		_, used := cpuKernels(l.activationType(o), matrix.Tiles)
		return fmt.Sprintf("device: CPU (%s); activations: %s", used, l.activationType(o))
	}
	text := fmt.Sprintf("device: %v; activations: %s", l.gpu, l.device.Type())
	u, err := l.device.MemoryUse(int(e.Config().KVCacheBytes))
	if err != nil { // the next step reports the failure
		return text
	}
	return fmt.Sprintf("%s; memory: %s of weights, %s for batches, %s for keys and values, %s of %s free", text, cuda.BytesText(u.Weights),
		cuda.BytesText(u.Batches), cuda.BytesText(u.KVCache), cuda.BytesText(u.Free), cuda.BytesText(u.Total))
}

// faster says how much faster prompts are if activations are rounded. times is the time of products of many rows divided
// by their time with rounded activations.
func faster(r model.Rounding, times float64) string {
	name := "int8"
	if r.Rounded == matrix.W16A16 {
		name = "bf16"
	}
	return fmt.Sprintf("--activation-dtype %s would round activations; products of prompts would be %.1f times as fast", name, times)
}

// notes prints which device computes the model. It also prints unexpected facts: the reason for using the CPU, the
// converted weights, and parts of the model's files that are missing or not used.
func (l *loaded) notes(w io.Writer, o *modelOptions, e *engine.Engine) {
	fmt.Fprintln(w, "  "+l.deviceText(o, e))
	if o.device.reason != "" {
		fmt.Fprintf(w, "  on the CPU: %s\n", o.device.reason)
	}
	if l.device != nil {
		for _, note := range l.device.Notes() {
			fmt.Fprintf(w, "  %s\n", note)
		}
	} else if r, ok := l.workers[0].Model.Rounding(); ok && o.activations == "auto" {
		if times := matrix.TimesAsLong(r.Kept, r.Rounded, r.Block); times > 0 { // not NaN
			fmt.Fprintf(w, "  %s\n", faster(r, times))
		}
	}
	if n := l.config.UnusedWindow; n > 0 {
		fmt.Fprintf(w, "  not used, as in llama.cpp: the file's sliding window of %d tokens\n", n)
	}
	if l.noSplit {
		fmt.Fprintln(w, "  warning: the file has no tokenizer.ggml.pre; text is split as by \"default\", as in llama.cpp, which "+
			"can make answers worse: convert the model again")
	}
	const maxNames = 3 // that are shown
	names, suffix := l.workers[0].Model.Unused(), ""
	if n := len(names) - maxNames; n > 0 {
		names, suffix = names[:maxNames], fmt.Sprintf(" and %d more", n)
	}
	if len(names) > 0 {
		fmt.Fprintf(w, "  not used: the tensors %s%s\n", terminal.VisibleName(strings.Join(names, ", ")), suffix)
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
