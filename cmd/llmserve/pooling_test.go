package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/testkit/weightfile"
)

// poolingGGUF writes a Qwen3 model with a pooling_type. Its tensors are those of a model for answers, and extraTensors.
func poolingGGUF(t *testing.T, kind uint32, meta map[string]any, extraTensors ...weightfile.Tensor) string {
	for _, tiny := range weightfile.Tinies() {
		if tiny.Meta["general.architecture"] == "qwen3" {
			tiny.Meta["qwen3.pooling_type"] = kind
			maps.Copy(tiny.Meta, meta)
			tiny.Tensors = append(tiny.Tensors, extraTensors...)
			path := filepath.Join(t.TempDir(), "m.gguf")
			require.NoError(t, os.WriteFile(path, tiny.GGUF(), 0o644))
			return path
		}
	}
	panic("no model")
}

// embed returns the vector of a text.
func (s *server) embed(t *testing.T, input string) []float64 {
	r := s.post(t, "/embeddings", fmt.Sprintf(`{"model": "m", "input": %q}`, input))
	body := text(t, r)
	require.Equal(t, 200, r.StatusCode, body)
	var answer struct {
		Data []struct{ Embedding []float64 }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &answer))
	return answer.Data[0].Embedding
}

// Ensure that a GGUF file for embeddings is served for them alone, and pooled as it says.
func TestAFileForEmbeddingsIsServedForThem(t *testing.T) {
	vectors := map[uint32][]float64{}
	for kind, name := range map[uint32]string{1: "MEAN", 3: "LAST"} {
		s, before := serveModelFile(t, poolingGGUF(t, kind, nil))
		line, err := s.lines.ReadString('\n')
		require.NoError(t, err)
		line2, err := s.lines.ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, before+line+line2, "vectors: /v1/embeddings, "+name+", normalized")
		vectors[kind] = s.embed(t, "some text")
		sum := 0.0
		for _, v := range vectors[kind] {
			sum += v * v
		}
		require.InDelta(t, 1, sum, 1e-5)
		r := s.post(t, "/completions", `{"model": "m", "prompt": "x", "max_tokens": 1}`)
		require.Equal(t, 400, r.StatusCode)
		require.Contains(t, text(t, r), `makes no answers; use /v1/embeddings`)
		models, err := http.Get(s.url + "/models")
		require.NoError(t, err)
		require.Contains(t, text(t, models), `"id":"m"`)
	}
	require.NotEqual(t, vectors[1], vectors[3])
}

// Ensure that with --runner pooling, a model for answers makes both, and that --pooler-config chooses the pooling.
func TestAModelForAnswersCanMakeVectors(t *testing.T) {
	s, _ := serveModelFile(t, poolingGGUF(t, 0, nil), "--runner", "pooling", "--pooler-config", `{"pooling_type": "MEAN", "normalize": false}`)
	sum := 0.0
	for _, v := range s.embed(t, "some text") {
		sum += v * v
	}
	require.Greater(t, math.Abs(sum-1), 0.1)
	r := s.post(t, "/completions", `{"model": "m", "prompt": "x", "max_tokens": 1}`)
	require.Equal(t, 200, r.StatusCode, text(t, r))

	s, _ = serveModelFile(t, poolingGGUF(t, 3, nil), "--runner", "generate")
	r = s.post(t, "/completions", `{"model": "m", "prompt": "x", "max_tokens": 1}`)
	require.Equal(t, 200, r.StatusCode, text(t, r))
	r = s.post(t, "/embeddings", `{"model": "m", "input": "x"}`)
	require.Equal(t, 400, r.StatusCode, text(t, r))
}

// Ensure that a GGUF file of a reranker scores by its own matrix and its own template: as the vectors of the pairs say.
func TestAFileOfARerankerScores(t *testing.T) {
	const size = weightfile.TinyHidden
	rows := make([]float32, 2*size)
	for i := range rows {
		rows[i] = float32(math.Sin(float64(i))) / 8
	}
	matrix := weightfile.F32("cls.output.weight", rows, 2, size)
	meta := map[string]any{"tokenizer.chat_template.rerank": "Q {query}\nD {document}\n\n", "qwen3.classifier.output_labels": []string{"yes", "no"}}
	s, _ := serveModelFile(t, poolingGGUF(t, 4, meta, matrix))
	r := s.post(t, "/rerank", `{"model": "m", "query": "what?", "documents": ["one", "two"]}`)
	body := text(t, r)
	require.Equal(t, 200, r.StatusCode, body)
	var answer struct {
		Results []struct {
			Index int
			Score float64 `json:"relevance_score"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &answer))

	raw, _ := serveModelFile(t, poolingGGUF(t, 3, nil), "--pooler-config", `{"normalize": false}`)
	require.Len(t, answer.Results, 2)
	for _, result := range answer.Results {
		logits := [2]float64{}
		for i, v := range raw.embed(t, "Q what?\nD "+[]string{"one", "two"}[result.Index]+"\n\n") {
			logits[0] += v * float64(rows[i])
			logits[1] += v * float64(rows[size+i])
		}
		require.InDelta(t, 1/(1+math.Exp(logits[1]-logits[0])), result.Score, 1e-6)
	}
}

// Ensure that what the files of a folder say about vectors is read as vLLM and sentence-transformers do.
func TestFoldersSayHowTheyPool(t *testing.T) {
	modules := func(types ...string) string {
		var all []map[string]string
		for i, kind := range types {
			all = append(all, map[string]string{"path": []string{"", "1_Pooling", "2_Normalize"}[i], "type": "sentence_transformers.models." + kind})
		}
		text, err := json.Marshal(all)
		require.NoError(t, err)
		return string(text)
	}
	all := modules("Transformer", "Pooling", "Normalize")
	tests := []struct {
		name, config, modules, pooling string
		want                           *pooler
		says                           string
	}{
		{"a model for answers", `{"architectures": ["Qwen3ForCausalLM"], "time_step_limit": [0.0, Infinity]}`, "", "", nil, ""},
		{"Qwen3-Embedding", `{"architectures": ["Qwen3ForCausalLM"]}`, all,
			`{"pooling_mode_cls_token": false, "pooling_mode_lasttoken": true, "include_prompt": true}`, &pooler{kind: pooling.Last}, ""},
		{"a mean that is not normalized", `{}`, modules("Transformer", "Pooling"), `{"pooling_mode_mean_tokens": true}`,
			&pooler{kind: pooling.Mean, raw: true}, ""},
		{"a classifier", `{"architectures": ["Qwen3ForSequenceClassification"]}`, "", "", &pooler{kind: pooling.Last, scores: true}, ""},
		{"the first token", `{}`, all, `{"pooling_mode_cls_token": true}`, nil, "pools by [\"pooling_mode_cls_token\"]"},
		{"two at once", `{}`, all, `{"pooling_mode_lasttoken": true, "pooling_mode_mean_tokens": true}`, nil, "alone are supported"},
		{"another module", `{}`, modules("Transformer", "Dense"), "", nil, `the type "sentence_transformers.models.Dense"`},
		{"no pooling", `{}`, modules("Transformer"), "", nil, "no module that pools"},
		{"a broken file", `{}`, "{", "", nil, "modules.json"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(dir, "1_Pooling"), 0o755))
			for name, text := range map[string]string{"config.json": test.config, "modules.json": test.modules, "1_Pooling/config.json": test.pooling} {
				if text != "" {
					require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
				}
			}
			got, err := folderPooler(dir)
			if test.says != "" {
				require.ErrorContains(t, err, test.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

// Ensure that a folder for embeddings needs no output matrix, and that one for answers does.
func TestAFolderForEmbeddingsNeedsNoOutputMatrix(t *testing.T) {
	const modules = `[{"path": "", "type": "sentence_transformers.models.Transformer"}, {"path": ".", "type": "sentence_transformers.models.Pooling"}]`
	dir := headlessFolder(t)
	require.Contains(t, refusedHere(t, dir, "--port", "0"), `"lm_head.weight" is missing`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "modules.json"), []byte(modules), 0o644))
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(config, &fields))
	fields["pooling_mode_lasttoken"] = true
	config, err = json.Marshal(fields)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644))
	s, _ := serveModelFile(t, dir, "--served-model-name", "m")
	require.Len(t, s.embed(t, "ab"), 8)
}

// headlessFolder writes a model without output matrix.
func headlessFolder(t *testing.T) string {
	dir := tinyFolder(t, nil)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), tinySafetensorsWithout(4, "lm_head.weight"), 0o644))
	return dir
}

// Ensure that the folder of a classifier scores by its own matrix: with one label, by the sigmoid of its logit.
func TestAFolderOfAClassifierScores(t *testing.T) {
	template := filepath.Join(t.TempDir(), "pair.jinja")
	require.NoError(t, os.WriteFile(template, []byte(`{{ messages[0].content }}{{ messages[1].content }}`), 0o644))
	files := map[string]string{"model.safetensors": string(tinySafetensors(4, "score.weight"))}
	config, err := os.ReadFile(filepath.Join(tinyFolder(t, nil), "config.json"))
	require.NoError(t, err)
	files["config.json"] = strings.Replace(string(config), "{", `{"architectures": ["LlamaForSequenceClassification"], `, 1)
	dir := tinyFolder(t, files)
	s, _ := serveModelFile(t, dir, "--served-model-name", "m", "--chat-template", template)
	r := s.post(t, "/rerank", `{"model": "m", "query": "a", "documents": ["b"]}`)
	body := text(t, r)
	require.Equal(t, 200, r.StatusCode, body)
	score := number(t, body, `"relevance_score":0.999(\d)`) // all weights and the normalized state are 1: sigmoid(8)
	require.Equal(t, 6, score, body)
	require.Contains(t, refusedHere(t, "run", dir, "x"), "the model scores texts and generates none")
}

// Ensure that two rows of the output matrix score a document, as vLLM's classifier_from_token: the score is the
// probability of the second token.
func TestTokensOfTheOutputMatrixScore(t *testing.T) {
	template := filepath.Join(t.TempDir(), "pair.jinja")
	require.NoError(t, os.WriteFile(template, []byte(`{{ messages[0].content }}{{ messages[1].content }}`), 0o644))
	path := poolingGGUF(t, 0, nil)
	s, _ := serveModelFile(t, path, "--hf-overrides", `{"architectures": ["Qwen3ForSequenceClassification"],
		"classifier_from_token": ["a", "b"], "is_original_qwen3_reranker": true}`, "--chat-template", template)
	r := s.post(t, "/rerank", `{"model": "m", "query": "one", "documents": [" two"]}`)
	body := text(t, r)
	require.Equal(t, 200, r.StatusCode, body)
	var answer struct {
		Results []struct {
			Score float64 `json:"relevance_score"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &answer))

	g, err := weights.OpenGGUF(path)
	require.NoError(t, err)
	defer g.Close()
	rows := [2][]float32{make([]float32, weightfile.TinyHidden), make([]float32, weightfile.TinyHidden)}
	g.Get("output.weight").Row('a', rows[0])
	g.Get("output.weight").Row('b', rows[1])
	raw, _ := serveModelFile(t, path, "--runner", "pooling", "--pooler-config", `{"normalize": false}`)
	difference := 0.0
	for i, v := range raw.embed(t, "one two") {
		difference += v * float64(rows[1][i]-rows[0][i])
	}
	require.InDelta(t, 1/(1+math.Exp(-difference)), answer.Results[0].Score, 1e-6)
	require.Greater(t, math.Abs(difference), 0.01)
}

func TestFlagsOfPoolingThatAreRefused(t *testing.T) {
	gguf := poolingGGUF(t, 2, nil)
	tests := []struct {
		args []string
		want string
	}{
		{[]string{"demo", "--runner", "draft"}, `--runner is "draft"; auto, generate and pooling are possible`},
		{[]string{"demo", "--runner", "pooling", "--pooler-config", `{"pooling_type": "CLS"}`}, `the pooling type is "CLS"; LAST and MEAN are possible`},
		{[]string{"demo", "--runner", "pooling", "--pooler-config", `{"pooling": "LAST"}`}, `--pooler-config: json: unknown field "pooling"`},
		{[]string{"demo", "--pooler-config", `{"pooling_type": "LAST"}`}, "--pooler-config needs --runner pooling"},
		{[]string{"demo", "--runner", "generate", "--pooler-config", `{}`}, "which --runner generate excludes"},
		{[]string{"demo", "--hf-overrides", `{"classifier_from_token": ["a", "b"]}`}, "--hf-overrides: the demo has no files with an output matrix"},
		{[]string{gguf}, "qwen3.pooling_type is 2; mean (1), last (3) and rank (4) are supported"},
		{[]string{poolingGGUF(t, 4, nil), "--runner", "generate"}, "the model scores texts and generates none"},
		{[]string{poolingGGUF(t, 4, nil)}, "no matrix that scores texts"},
		{[]string{tinyFolder(t, nil), "--hf-overrides", `{"classifier_from_token": ["no", "yes"]}`}, `"yes" is not a token of the model`},
		{[]string{tinyFolder(t, nil), "--hf-overrides", `{"classifier_from_token": ["a"]}`}, "has 1 tokens; two are needed"},
		{[]string{tinyFolder(t, nil), "--hf-overrides", `{"classifier_from_token": ["a", "b"]}`}, "no template for its pairs is known; give --chat-template"},
	}
	for _, test := range tests {
		require.Contains(t, refusedHere(t, append(test.args, "--port", "0", "--kv-cache-gb", "0.1")...), test.want)
	}
}
