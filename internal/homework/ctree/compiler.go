package ctree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"modernc.org/cc/v4"
)

// A Compiler is what the C compiler of this machine reports about itself: enough to read C as it
// does, also in another process.
type Compiler struct {
	Predefined  string   // its built-in macros, as #define lines
	IncludePath []string // folders of #include <...>
}

// AskCompiler runs the C compiler, which must be installed, with the given flags.
func AskCompiler(flags ...string) (Compiler, error) {
	config, err := cc.NewConfig(runtime.GOOS, runtime.GOARCH, flags...)
	if err != nil {
		return Compiler{}, fmt.Errorf("asking the C compiler: %w", err)
	}
	return Compiler{config.Predefined, config.SysIncludePaths}, nil
}

// config configures cc. #include "..." is looked for beside the including file, then in the
// folders given, then where <...> is.
func (c Compiler) config(include ...string) (*cc.Config, error) {
	abi, err := cc.NewABI(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return nil, fmt.Errorf("layout of C types: %w", err)
	}
	return &cc.Config{
		ABI:             abi,
		Predefined:      c.Predefined,
		IncludePaths:    slices.Concat([]string{""}, include, c.IncludePath),
		SysIncludePaths: c.IncludePath,
	}, nil
}

// translate parses and type-checks one file.
func translate(config *cc.Config, name string, text []byte) (*cc.AST, error) {
	ast, err := cc.Translate(config, []cc.Source{
		{Name: "<predefined>", Value: config.Predefined}, // cc knows these two by their names
		{Name: "<builtin>", Value: cc.Builtin},
		{Name: name, Value: text},
	})
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", name, err)
	}
	return ast, nil
}

// headers is the file system for an untrusted source: the files given, and the files in the
// folders of #include <...>.
type headers struct {
	files   map[string][]byte
	folders []string
}

func (h headers) Open(name string) (fs.File, error) {
	name = path.Clean(name)
	if text, found := h.files[name]; found {
		return file{bytes.NewReader(text)}, nil
	}
	for _, folder := range h.folders {
		if strings.HasPrefix(name, folder+"/") {
			return os.Open(name)
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

type file struct{ *bytes.Reader }

func (file) Stat() (fs.FileInfo, error) { return nil, errors.ErrUnsupported }
func (file) Close() error               { return nil }
