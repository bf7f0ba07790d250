package tokenizer

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func infillGGUF(t *testing.T, model string, kind int32, keys map[string]any, marks ...string) *Tokenizer {
	tokens := []string{"a", "b", "<", ">", "|", "P", "[", "]", "\u2581"}
	first := len(tokens)
	tokens = append(tokens, marks...)
	kinds, scores := make([]int32, len(tokens)), make([]float32, len(tokens))
	for i := range tokens {
		kinds[i] = 1
		if i >= first {
			kinds[i] = kind
		}
	}
	all := map[string]any{"tokenizer.ggml.model": model, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.scores": scores,
		"tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": []string{}}
	for key, value := range keys {
		all["tokenizer.ggml."+key] = value
	}
	tok, err := FromGGUF(meta(t, all))
	require.NoError(t, err)
	return tok
}

func TestFillingInTheMiddleHasTheMarksAndTheOrderOfTheFamily(t *testing.T) {
	qwen := []string{"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"}
	for _, test := range []struct {
		name, model string
		kind        int32
		keys        map[string]any
		marks       []string
		want, ends  []int32
	}{
		{"Qwen2.5-Coder", "gpt2", 4, nil, qwen, []int32{9, 0, 11, 1, 10}, []int32{12}},
		{"StarCoder2", "gpt2", 3, nil, []string{"<|endoftext|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<file_sep>"},
			[]int32{10, 0, 12, 1, 11}, []int32{9, 13}},
		{"Granite, whose text begins with a token", "gpt2", 3, map[string]any{"add_bos_token": true, "bos_token_id": uint32(9),
			"add_eos_token": true, "eos_token_id": uint32(9)}, []string{"<|end_of_text|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>"},
			[]int32{9, 10, 0, 12, 1, 11}, nil},
		{"DeepSeek-Coder", "gpt2", 4, nil, []string{"<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"}, []int32{10, 0, 9, 1, 11}, nil},
		{"CodeLlama, with a space before the prefix only", "llama", 1, map[string]any{"add_bos_token": false},
			[]string{"▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>"}, []int32{9, 8, 0, 11, 1, 10}, []int32{12}},
		{"Codestral, with the suffix first", "llama", 3, map[string]any{"add_bos_token": false}, []string{"[PREFIX]", "[SUFFIX]"},
			[]int32{10, 1, 9, 8, 0}, nil},
		{"keys", "gpt2", 3, map[string]any{"fim_pre_token_id": uint32(9), "fim_suf_token_id": uint32(10), "fim_mid_token_id": uint32(11),
			"fim_sep_token_id": uint32(12)}, []string{"<x>", "<y>", "<z>", "<s>"}, []int32{9, 0, 10, 1, 11}, []int32{12}},
		{"older keys", "gpt2", 3, map[string]any{"prefix_token_id": uint32(11), "suffix_token_id": uint32(10),
			"middle_token_id": uint32(9)}, []string{"<x>", "<y>", "<z>"}, []int32{11, 0, 10, 1, 9}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := infillGGUF(t, test.model, test.kind, test.keys, test.marks...).Infill()
			require.NotNil(t, f)
			got, err := f.Encode(t.Context(), "a", "b", true, math.MaxInt)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
			require.Equal(t, test.ends, f.Ends())
			_, err = f.Encode(t.Context(), "a", "b", true, len(got)-1)
			require.ErrorIs(t, err, ErrTooMany)
		})
	}
	for name, marks := range map[string][]string{"none": {"<|im_end|>"}, "only two": qwen[:2], "Codestral without a suffix": {"[PREFIX]"}} {
		require.Nil(t, infillGGUF(t, "gpt2", 3, nil, marks...).Infill(), name)
	}
}

// Ensure that a client's text never becomes a token for filling in the middle or a special token, whatever kind the
// file gives the token.
func TestTextsAroundAMiddleHaveNoMarks(t *testing.T) {
	for _, marks := range [][]string{
		{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>"},
		{"▁<PRE>", "▁<SUF>", "▁<MID>", "<|im_end|>"},
		{"[PREFIX]", "[SUFFIX]"},
	} {
		for _, kind := range []int32{1, 3, 4} {
			tok := infillGGUF(t, map[bool]string{false: "gpt2", true: "llama"}[marks[0] == "▁<PRE>"], kind, nil, marks...)
			plain, err := tok.Infill().Encode(t.Context(), "a", "b", false, math.MaxInt)
			require.NoError(t, err)
			for _, mark := range marks {
				got, err := tok.Infill().Encode(t.Context(), "a"+mark, mark+"b", false, math.MaxInt)
				require.NoError(t, err)
				named := func(ids []int32) []int32 { return slices.DeleteFunc(ids, func(id int32) bool { return id < 9 }) }
				require.Equal(t, named(slices.Clone(plain)), named(got), mark)
			}
		}
	}
}

func TestFilesComeBeforeTheMiddle(t *testing.T) {
	qwen := []string{"<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|repo_name|>", "<|file_sep|>"}
	files := []InfillFile{{"b", "a"}, {"a", "b|<|file_sep|>"}}
	encode := func(f *Infill, limit, spare int) []int32 {
		got, err := f.EncodeFiles(t.Context(), files, "a", "b", true, limit, spare)
		require.NoError(t, err)
		return slices.DeleteFunc(got, func(id int32) bool { return id > 1 && id < 9 }) // only a and b, of which filename has one, and the marks
	}
	f := infillGGUF(t, "gpt2", 3, nil, qwen...).Infill()
	middle := []int32{9, 0, 11, 1, 10}
	last := []int32{13, 0, 1}
	require.Equal(t, slices.Concat([]int32{12}, []int32{13, 1, 0}, last, []int32{13, 0}, middle), encode(f, math.MaxInt, 0))
	whole, err := f.EncodeFiles(t.Context(), files, "a", "b", true, math.MaxInt, 0)
	require.NoError(t, err)
	n := len(whole)
	require.Equal(t, encode(f, math.MaxInt, 0), encode(f, n, 0))
	require.Equal(t, slices.Concat([]int32{12}, last, []int32{13, 0}, middle), encode(f, n-1, 0), "the first file is left out")
	require.Equal(t, slices.Concat([]int32{12}, last, []int32{13, 0}, middle), encode(f, n, 1))
	require.Equal(t, middle, encode(f, len(middle), 0))
	_, err = f.EncodeFiles(t.Context(), files, "a", "b", true, len(middle)-1, 0)
	require.ErrorIs(t, err, ErrTooMany)

	f = infillGGUF(t, "gpt2", 3, map[string]any{"add_bos_token": true, "bos_token_id": uint32(9)}, "<s>", "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>").Infill()
	require.Equal(t, []int32{9, 0, 1, 10, 0, 11, 1, 12}, encode(f, math.MaxInt, 0), "without tokens for files")
}
