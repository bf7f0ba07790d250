package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/model/pyjson"
	"llmmemory/internal/serving/model/weights"
)

// poolingOptions are the flags for vectors and scores. Their names are vLLM's.
type poolingOptions struct {
	runner, config, overrides string
	pooler                    struct {
		Type      pooling.Type `json:"pooling_type"`
		Normalize *bool        `json:"normalize"`
	}
	override struct {
		Labels []string `json:"classifier_from_token"`

		Architectures []string `json:"architectures"`              // not needed
		Original      bool     `json:"is_original_qwen3_reranker"` // not needed
	}
}

func (o *poolingOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.runner, "runner", "auto",
		"what the model is served for: generate: answers; pooling: also vectors of its hidden states (/v1/embeddings, "+
			"/v1/rerank); auto: generate, or vectors alone if the model's files say that it is for them")
	f.StringVar(&o.config, "pooler-config", "",
		`how vectors are made, as JSON: {"pooling_type": "LAST", "normalize": true}; LAST is the state of the last token, MEAN the `+
			`mean of all (default: as the files say, else these)`)
	f.StringVar(&o.overrides, "hf-overrides", "",
		`tokens whose rows of the output matrix score a document, for Qwen3-Reranker's folder: {"classifier_from_token": ["no", "yes"]}`)
}

// check reads the flags.
func (o *poolingOptions) check() error {
	if !slices.Contains([]string{"auto", "generate", "pooling"}, o.runner) {
		return fmt.Errorf("--runner is %q; auto, generate and pooling are possible", o.runner)
	}
	for _, f := range []struct {
		name, text string
		dst        any
	}{{"pooler-config", o.config, &o.pooler}, {"hf-overrides", o.overrides, &o.override}} {
		if f.text == "" {
			continue
		}
		d := json.NewDecoder(strings.NewReader(f.text))
		d.DisallowUnknownFields()
		if err := d.Decode(f.dst); err != nil {
			return fmt.Errorf("--%s: %w", f.name, err)
		}
		if o.runner == "generate" {
			return fmt.Errorf("--%s is about vectors, which --runner generate excludes", f.name)
		}
	}
	if o.pooler.Type != "" {
		if err := o.pooler.Type.Check(); err != nil {
			return fmt.Errorf("--pooler-config: %w", err)
		}
	}
	if n := len(o.override.Labels); o.overrides != "" && n != 2 {
		return fmt.Errorf("--hf-overrides: classifier_from_token has %d tokens; two are needed, as [\"no\", \"yes\"]", n)
	}
	return nil
}

// A pooler says what a model's files state about vectors.
type pooler struct {
	kind     pooling.Type
	raw      bool   // vectors are not normalized
	scores   bool   // the model is a reranker
	template string // of a reranker, or ""
}

// folderPooler reads what a folder states, as vLLM does: the class in config.json, and the modules of
// sentence-transformers. It returns nil if it states nothing.
func folderPooler(dir string) (*pooler, error) {
	var config struct{ Architectures []string }
	if _, err := readJSON(filepath.Join(dir, "config.json"), &config); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(config.Architectures, func(a string) bool { return strings.HasSuffix(a, "ForSequenceClassification") }) {
		return &pooler{kind: pooling.Last, scores: true}, nil
	}
	var modules []struct{ Path, Type string }
	if found, err := readJSON(filepath.Join(dir, "modules.json"), &modules); !found || err != nil {
		return nil, err
	}
	p := &pooler{raw: true}
	for _, m := range modules {
		switch _, kind, _ := strings.Cut(m.Type, "."); kind[strings.LastIndex(kind, ".")+1:] {
		case "Transformer":
		case "Normalize":
			p.raw = false
		case "Pooling":
			var err error
			if p.kind, err = modulePooling(filepath.Join(dir, filepath.Clean("/"+m.Path), "config.json")); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("modules.json has a module of the type %q, which is not supported", m.Type)
		}
	}
	if p.kind == "" {
		return nil, errors.New("modules.json has no module that pools")
	}
	return p, nil
}

// modulePooling reads the config.json of sentence-transformers' module Pooling.
func modulePooling(path string) (pooling.Type, error) {
	var modes map[string]json.RawMessage
	if _, err := readJSON(path, &modes); err != nil {
		return "", err
	}
	var set []string
	for name, value := range modes {
		if string(value) == "true" && strings.HasPrefix(name, "pooling_mode_") {
			set = append(set, name)
		}
	}
	if slices.Sort(set); len(set) == 1 {
		switch set[0] {
		case "pooling_mode_lasttoken":
			return pooling.Last, nil
		case "pooling_mode_mean_tokens":
			return pooling.Mean, nil
		}
	}
	return "", fmt.Errorf("%s pools by %q; pooling_mode_lasttoken or pooling_mode_mean_tokens alone are supported, or give --pooler-config",
		path, set)
}

// readJSON decodes a file, and reports whether there is one.
func readJSON(path string, dst any) (found bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = pyjson.Unmarshal(data, dst)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

// ggufPooler reads what a GGUF file states. It returns nil if it states nothing.
func ggufPooler(g *weights.GGUF, architecture string) (*pooler, error) {
	kind, found := g.Meta[architecture+".pooling_type"].Int()
	switch {
	case !found || kind == 0:
		return nil, nil
	case kind == 1:
		return &pooler{kind: pooling.Mean}, nil
	case kind == 3:
		return &pooler{kind: pooling.Last}, nil
	case kind == 4:
		return &pooler{kind: pooling.Last, scores: true, template: g.Meta["tokenizer.chat_template.rerank"].String()}, nil
	}
	return nil, fmt.Errorf("%s.pooling_type is %d; mean (1), last (3) and rank (4) are supported", architecture, kind)
}

// setPooling sets l.pooling from the flags and from what the files state. The demo has no files.
func (l *loaded) setPooling(o *modelOptions, stated *pooler, files *weights.Tensors, gguf bool) error {
	f := &o.pooling
	if stated != nil && stated.scores && (f.runner == "" || f.runner == "generate") {
		return errors.New("the model scores texts and generates none; serve it with llmserve MODEL, for /v1/rerank")
	}
	if f.runner == "" || f.runner == "generate" || stated == nil && f.runner != "pooling" && f.overrides == "" {
		if f.config != "" {
			return errors.New("--pooler-config needs --runner pooling, because the model's files do not say that it is for vectors")
		}
		return nil
	}
	p := pooler{kind: pooling.Last}
	if stated != nil {
		p = *stated
	}
	l.pooling = &openai.Pooling{Type: cmp.Or(f.pooler.Type, p.kind), Raw: p.raw, Only: stated != nil}
	if n := f.pooler.Normalize; n != nil {
		l.pooling.Raw = !*n
	}
	if !p.scores && f.overrides == "" {
		return nil
	}
	if files == nil {
		return errors.New("--hf-overrides: the demo has no files with an output matrix; give a model")
	}
	var labels []int32
	for _, text := range slices.Backward(f.override.Labels) { // the first label is the one that a score is the probability of
		id, ok := l.tokenizer.Token(text)
		if !ok {
			return fmt.Errorf("--hf-overrides: %q is not a token of the model", text)
		}
		labels = append(labels, id)
	}
	rows, err := model.Classifier(l.config, files, gguf, labels)
	if err != nil {
		return err
	}
	l.pooling.Classifier = rows
	if l.pooling.Template = l.template; o.template == "" {
		source := cmp.Or(p.template, qwen3Template(l.config))
		if source == "" {
			return errors.New("the model is a reranker, and no template for its pairs is known; give --chat-template, which gets a message of " +
				"the role query and one of the role document")
		}
		l.pooling.Template, err = chat.New(pooling.Template(source), nil)
	}
	return err
}

func qwen3Template(c *model.Config) string {
	if c.Family == "qwen3" {
		return pooling.Qwen3Reranker
	}
	return ""
}

// poolingText says what the server makes of hidden states.
func (l *loaded) poolingText() string {
	switch p := l.pooling; {
	case p.Classifier != nil:
		return "scores: /v1/rerank"
	case p.Raw:
		return fmt.Sprintf("vectors: /v1/embeddings, %s, not normalized", p.Type)
	default:
		return fmt.Sprintf("vectors: /v1/embeddings, %s, normalized", p.Type)
	}
}
