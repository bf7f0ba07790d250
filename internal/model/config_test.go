package model_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/model"
	"llmmemory/internal/model/weights"
	"llmmemory/internal/testkit/weightfile"
)

const smallLlama = `{"model_type": "llama", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8, "eos_token_id": `

// The tokens that end a sequence are those of generation_config.json, which has more than config.json
// for models that chat.
func TestTokensThatEndASequence(t *testing.T) {
	for _, test := range []struct {
		name, config, generation string
		want                     []int32
	}{
		{"one", smallLlama + `2}`, "", []int32{2}},
		{"several", smallLlama + `[2, 3]}`, "", []int32{2, 3}},
		{"none", smallLlama + `null}`, "", nil},
		{"of generation_config.json", smallLlama + `2}`, `{"eos_token_id": [4, 5]}`, []int32{4, 5}},
		{"not in generation_config.json", smallLlama + `2}`, `{"temperature": 0.6}`, []int32{2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(test.config), 0o644))
			if test.generation != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(test.generation), 0o644))
			}
			c, err := model.ReadConfig(dir)
			require.NoError(t, err)
			require.Equal(t, test.want, c.End)
			require.False(t, c.TieEmbeddings, "Llama's default")
		})
	}
}

// A GGUF file names the end of a text and that of a turn in a chat.
func TestTokensThatEndASequenceInGGUF(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, os.WriteFile(path, weightfile.GGUF(map[string]any{
		"general.architecture": "llama", "llama.embedding_length": uint32(8), "llama.block_count": uint32(1), "llama.attention.head_count": uint32(1),
		"llama.feed_forward_length": uint32(8), "llama.context_length": uint32(16), "llama.attention.layer_norm_rms_epsilon": float32(1e-5),
		"tokenizer.ggml.eos_token_id": uint32(2), "tokenizer.ggml.eot_token_id": uint32(3),
	}, weightfile.F32("token_embd.weight", make([]float32, 72), 9, 8)), 0o644))
	g, err := weights.OpenGGUF(path)
	require.NoError(t, err)
	defer g.Close()
	c, err := model.ConfigFromGGUF(g)
	require.NoError(t, err)
	require.Equal(t, []int32{2, 3}, c.End)
	require.True(t, c.TieEmbeddings, "there is no output.weight")
}
