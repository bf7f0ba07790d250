package ctree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"

	"modernc.org/cc/v4"
)

// A Compiler describes the C compiler of this machine: its built-in macros and its folders of headers. With them, a
// parser reads C like this compiler. A Compiler can be encoded and sent to another process.
type Compiler struct {
	Predefined  string   // its built-in macros, as #define lines
	IncludePath []string // folders of #include <...>
}

// AskCompiler asks the installed C compiler, run with the given flags.
func AskCompiler(flags ...string) (Compiler, error) {
	config, err := cc.NewConfig(runtime.GOOS, runtime.GOARCH, flags...)
	if err != nil {
		return Compiler{}, fmt.Errorf("asking the C compiler: %w", err)
	}
	return Compiler{config.Predefined, config.SysIncludePaths}, nil
}

// headers is the file system in which the parser finds headers. An untrusted source can read only the given files,
// and files in the folders that the compiler searches for #include <...>.
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
