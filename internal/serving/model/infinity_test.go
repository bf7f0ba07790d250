package model_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/tokenizer"
)

// Ensure that a folder whose files have numbers that are not finite, as Python writes them, is loaded.
func TestFoldersMayHaveInfinities(t *testing.T) {
	all := append(hybridFamilies(), nemotronH("ME*M-E"))
	for _, name := range []string{"Granite 4, experts", all[len(all)-1].name} {
		f := &all[slices.IndexFunc(all, func(f family) bool { return f.name == name })]
		delete(f.config, "time_step_limit")
		dir := f.write(t)
		config := filepath.Join(dir, "config.json")
		text, err := os.ReadFile(config)
		require.NoError(t, err)
		const more = `{"time_step_limit": [0.0, Infinity], "unknown": [NaN, -Infinity],`
		require.NoError(t, os.WriteFile(config, bytes.Replace(text, []byte("{"), []byte(more), 1), 0o644))
		generation := `{"eos_token_id": 3, "temperature": Infinity}`
		require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(generation), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), []byte(`{"model_max_length": Infinity, "bos_token": "B"}`), 0o644))
		c, err := model.ReadConfig(dir)
		require.NoError(t, err)
		require.Equal(t, []int32{3}, c.End)
		require.Zero(t, c.Recurrence.MaxStep)
		m, err := folder(dir)(newPool(t, 1), model.Part{Size: 1})
		require.NoError(t, err)
		require.NoError(t, m.Close())
		tokens, err := tokenizer.SpecialTokens(dir)
		require.NoError(t, err)
		require.Equal(t, "B", tokens["bos_token"])
	}
}

// Ensure that a number that is not finite is refused by the name of its field, if the model needs it.
func TestInfinitiesThatAModelNeedsAreRefused(t *testing.T) {
	all := hybridFamilies()
	granite := string(toJSON(t, all[slices.IndexFunc(all, func(f family) bool { return f.name == "Granite 4, experts" })].config))
	for text, want := range map[string]string{
		`"rms_norm_eps": NaN`:                     "config.json: rms_norm_eps is NaN; a finite value is needed",
		`"embedding_multiplier": Infinity`:        "config.json: embedding_multiplier is Infinity; a finite value is needed",
		`"mamba_d_head": Infinity`:                "config.json: mamba_d_head has the wrong type: Infinity",
		`"sliding_window": -Infinity`:             "config.json: sliding_window has the wrong type: -Infinity",
		`"eos_token_id": NaN`:                     "eos_token_id: a value is NaN",
		`"rope_scaling": Infinity`:                "config.json: rope_scaling has the wrong type",
		`"rope_parameters": {"factor": Infinity}`: "config.json: rope_parameters.factor is Infinity; a finite value is needed",
		`"time_step_limit": [0.0, NaN]`:           "config.json: time_step_limit is from 0.0 to NaN",
	} {
		_, err := model.ParseConfig([]byte(granite[:len(granite)-1] + ", " + text + "}"))
		require.ErrorContains(t, err, want)
	}
}
