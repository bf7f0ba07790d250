package main

import (
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/sim/scenario"
)

// checkUsed refuses a flag that none of the systems looks at: the result would be
// taken for what was asked. No system is the default one.
func checkUsed(s *scenario.Scenario, systems ...string) error {
	v := &s.Server
	if v.Caching && v.NoCaching {
		return fmt.Errorf("--caching and --no-caching: take one of them")
	}
	if s.Decoding.Beam && s.Decoding.Samples < 2 {
		return fmt.Errorf("--beam: a beam of %d is none: add --samples 2 or more", s.Decoding.Samples)
	}
	for _, f := range []struct {
		set  bool
		flag string
		by   []string
	}{
		{v.Swap, "--swap", []string{"sosp", "vllm-v0"}},
		{v.Chunked, "--chunked", []string{"vllm-v0", "vllm-v1"}},
		{v.Caching, "--caching", []string{"vllm-v0", "vllm-v1"}},
		{v.Prefix != 0, "--prefix", []string{"sosp"}},
		{v.Batch != 0, "--batch", []string{"fastertransformer"}},
	} {
		used := slices.ContainsFunc(systems, func(system string) bool {
			if system == "" {
				system = "vllm-v1"
			}
			return slices.Contains(f.by, system)
		})
		if f.set && !used {
			system := strings.Join(systems, ", ")
			if system == "" {
				system = "vllm-v1, the default"
			}
			return fmt.Errorf("%s does nothing with %s: it is for %s", f.flag, system, strings.Join(f.by, ", "))
		}
	}
	return nil
}
