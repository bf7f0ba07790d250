package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheapestRefusesWhatCannotBe(t *testing.T) {
	for _, c := range []struct {
		name    string
		args    []string
		wantErr string
	}{
		{"no target", []string{"--model", "llama-3-8b"}, "target"},
		{"a target of 0", []string{"--model", "llama-3-8b", "--target", "0"}, "above 0"},
		{"no model", []string{"--target", "1"}, "model"},
		{"an objective that is none", []string{"--model", "llama-3-8b", "--target", "1", "--slo", "fast"}, "bad objective"},
		{"prices there are not", []string{"--model", "llama-3-8b", "--target", "1", "--prices", "no-such.json"}, "no-such.json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, _, stderr := llmsim(t, append([]string{"cheapest"}, c.args...)...)
			require.Equal(t, 1, status)
			require.Contains(t, stderr, c.wantErr)
		})
	}
}
