package cost

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"llmmemory/internal/terminal"
)

var (
	// ErrUnknown is wrapped when a name is not built in.
	ErrUnknown = errors.New("unknown name")
	// ErrFile is wrapped when a file, or a number in it, cannot be used.
	ErrFile = errors.New("bad setup")
)

// builtIn has the built-in setups, models and GPUs, in the format of users' files.
//
//go:embed setups llms gpus
var builtIn embed.FS

// Setups returns the names of the built-in setups, sorted.
func Setups() []string { return names("setups") }

// LLMs returns the names of the built-in models, sorted.
func LLMs() []string { return names("llms") }

// GPUs returns the names of the built-in GPUs, sorted.
func GPUs() []string { return names("gpus") }

func names(kind string) []string {
	entries, err := fs.ReadDir(builtIn, kind)
	if err != nil {
		panic(err) // it is embedded
	}
	all := make([]string, len(entries))
	for i, e := range entries {
		all[i] = strings.TrimSuffix(e.Name(), ".json")
	}
	return all
}

// OpenLLM returns a built-in model, or reads a model from a file. The file has the format of the built-in models, or
// is the model's config.json on Hugging Face. The error wraps ErrUnknown or ErrFile.
func OpenLLM(name string) (LLM, error) {
	l, err := readLLM(name)
	if err != nil {
		return LLM{}, fmt.Errorf("model %q: %w", name, err)
	}
	if err := l.check(); err != nil {
		return LLM{}, fmt.Errorf("model %q: %w: %w", name, ErrFile, err)
	}
	return l, nil
}

func readLLM(name string) (l LLM, err error) {
	if isFile(name) {
		text, err := os.ReadFile(name)
		if err != nil {
			return l, fmt.Errorf("%w: %w; want a file, such as the model's config.json on Hugging Face, or one of %s", ErrFile,
				err, strings.Join(LLMs(), ", "))
		}
		var h huggingFace
		if json.Unmarshal(text, &h) == nil && h.Architectures != nil {
			if l, err = h.llm(name); err != nil {
				err = fmt.Errorf("%w: %w", ErrFile, err)
			}
			return l, err
		}
	}
	return l, read("llms", name, &l)
}

// OpenGPU returns a built-in GPU, or reads a GPU from a file. The error wraps ErrUnknown or ErrFile.
func OpenGPU(name string) (GPU, error) {
	var g GPU
	if err := read("gpus", name, &g); err != nil {
		return GPU{}, fmt.Errorf("gpu %q: %w", name, err)
	}
	if err := checkRanges(g); err != nil {
		return GPU{}, fmt.Errorf("gpu %q: %w: %w", name, ErrFile, err)
	}
	return g, nil
}

// Open returns a built-in setup, or reads a setup from a file. It also opens the model and the GPU that the
// setup names; a relative path is relative to the setup's file. The error wraps ErrUnknown or ErrFile.
func Open(name string) (Setup, error) {
	file := struct {
		Name    string  `json:"name"`
		Source  string  `json:"source"`
		LLM     string  `json:"model"`
		GPU     string  `json:"gpu"`
		Workers int     `json:"workers"`
		Linear  *Linear `json:"linear_ms"`
		Engine  Engine  `json:"engine"`
		Memory  Memory  `json:"memory"`
	}{Engine: DefaultEngine, Memory: DefaultMemory}
	if err := read("setups", name, &file); err != nil {
		return Setup{}, fmt.Errorf("setup %q: %w", name, err)
	}
	sibling := func(other string) string {
		if isFile(name) && isFile(other) && !filepath.IsAbs(other) {
			return filepath.Join(filepath.Dir(name), other)
		}
		return other
	}
	s, err := New(sibling(file.LLM), sibling(file.GPU), file.Workers)
	if err != nil {
		return Setup{}, fmt.Errorf("setup %q: %w", name, err)
	}
	if file.Name != "" {
		s.Name = file.Name
	}
	s.Linear, s.Engine, s.Memory = file.Linear, file.Engine, file.Memory
	if err := s.check(); err != nil {
		return Setup{}, fmt.Errorf("setup %q: %w: %w", name, ErrFile, err)
	}
	return s, nil
}

// suggestion returns a question such as ": did you mean x?". It has the known names that begin with name or,
// if there are none, the most similar one. It is "" if none is similar.
func suggestion(name string, known []string) string {
	name = strings.ToLower(name)
	var all []string
	for _, k := range known {
		if name != "" && strings.HasPrefix(k, name) {
			all = append(all, k)
		}
	}
	if meant := cmp.Or(strings.Join(all, " or "), terminal.Nearest(name, known)); meant != "" {
		return ": did you mean " + meant + "?"
	}
	return ""
}

// isFile reports whether name is a file's, not a built-in name.
func isFile(name string) bool {
	return strings.HasSuffix(name, ".json") || strings.ContainsRune(name, filepath.Separator)
}

// read decodes a built-in file of a kind, or a user's file if name is a path. Unknown fields are errors.
func read(kind, name string, dst any) error {
	if isFile(name) {
		return readFile(name, dst)
	}
	text, err := builtIn.ReadFile(kind + "/" + name + ".json")
	if err != nil {
		example := ""
		if kind == "llms" {
			example = ", such as the model's config.json on Hugging Face"
		}
		return fmt.Errorf("%w%s; known are %s, or give a .json file%s", ErrUnknown, suggestion(name, names(kind)),
			strings.Join(names(kind), ", "), example)
	}
	return decode(text, dst)
}

func readFile(path string, dst any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	return decode(text, dst)
}

// embedded decodes an embedded file, or a part of one, into v, and returns v. It panics if the text is not valid.
func embedded[T any](text []byte, v *T) *T {
	if err := json.Unmarshal(text, v); err != nil {
		panic(err)
	}
	return v
}

func decode(text []byte, dst any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(dst); err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something follows the first object", ErrFile)
	}
	return nil
}
