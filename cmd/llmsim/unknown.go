package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"llmmemory/internal/terminal"
)

// vllmFlags are flags of vllm serve and vllm bench serve, and what the same is called here.
var vllmFlags = map[string]string{
	"tensor-parallel-size": "workers", "tp": "workers", "pipeline-parallel-size": "stages",
	"enable-expert-parallel": "experts-apart",
	"max-num-seqs":           "max-seqs", "max-num-batched-tokens": "max-tokens", "max-model-len": "max-len",
	"gpu-memory-utilization": "memory-utilization", "num-gpu-blocks-override": "blocks", "quantization": "weights",
	"dtype": "weights", "kv-cache-dtype": "kv",
	"enable-prefix-caching": "caching", "no-enable-prefix-caching": "no-caching", "enable-chunked-prefill": "chunked",
	"request-rate": "rate", "rps": "rate", "qps": "rate", "num-prompts": "requests", "dataset-name": "workload",
	"dataset-path":     "trace",
	"random-input-len": "input-len", "random-output-len": "output-len", "random-range-ratio": "range-ratio",
	"num-gpus": "workers", "gpus": "workers", "num-replicas": "replicas", "data-parallel-size": "replicas",
	"dp":                     "replicas",
	"num-speculative-tokens": "drafts",
}

// explainFlag names the flag that was meant, or says why the command does not have it. It describes a
// value that is not a number in its own words, not those of Go's parser.
func explainFlag(c *cobra.Command, err error) error {
	if text, kind, number := strings.Cut(err.Error(), ": strconv.Parse"); number {
		switch {
		case strings.HasPrefix(kind, "Float"):
			return fmt.Errorf("%s: want a number without a unit; %s --help has the unit", text, c.CommandPath())
		case strings.HasPrefix(kind, "Int"):
			return fmt.Errorf("%s: want a whole number", text)
		case strings.HasPrefix(kind, "Uint"):
			return fmt.Errorf("%s: want a whole number of at least 0", text)
		}
	}
	_, name, unknown := strings.Cut(err.Error(), "unknown flag: --")
	if !unknown {
		return err
	}
	name, _, _ = strings.Cut(name, "=")
	if instead := removed[c.Name()+" --"+name]; instead != "" {
		return fmt.Errorf("--%s was removed: %s", name, instead)
	}
	here := vllmFlags[name]
	if c.Name() == "plan" {
		switch {
		case name == "rate" || here == "rate":
			return fmt.Errorf("%w: a plan finds the rate; --target says what a rate takes", err)
		case name == "max-concurrency" || name == "turns" || name == "think" || name == "goodput":
			return fmt.Errorf("%w: the requests of a plan do not wait for answers, and --slo says what has to hold; llmsim "+
				"run has the flag", err)
		}
	}
	switch {
	case name == "slo" && c.Flags().Lookup("goodput") != nil:
		return fmt.Errorf("%w: --goodput counts the requests within limits; llmsim plan finds the rate that holds an "+
			"objective", err)
	case here != "" && c.Flags().Lookup(here) != nil:
		return fmt.Errorf("%w; here it is --%s", err, here)
	}
	return terminal.SuggestFlag(c, err)
}
