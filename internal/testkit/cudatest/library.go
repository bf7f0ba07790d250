// Package cudatest runs CUDA kernels without a GPU. It builds a shared library that exports the functions of
// NVIDIA's driver (libcuda.so.1) that the product uses, and contains the kernels, compiled for the host.
//
// The threads of a block are fibers that run one at a time. An access outside memory, a barrier that some threads do
// not reach, copies that are not waited for and the like end a launch; Driver.Failure says which. Fresh memory, shared memory,
// the surroundings of an allocation, and the destination of a copy that was not waited for hold NaN in every type. Work in a stream is
// done only when something waits for it. Driver.Order changes the order of threads and blocks: a result that
// depends on it lacks a barrier.
package cudatest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"llmmemory/internal/testkit/level"
)

var flags = []string{"-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off"}

// root is the folder of the module: the first one with a go.mod from the working directory of the test upwards.
var root = sync.OnceValues(func() (string, error) {
	at, err := os.Getwd()
	for ; err == nil; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("there is no go.mod above the working directory")
		}
	}
	return "", err
})

// The folders of the emulator's sources, of the product's kernels, and of those that test the emulator.
func emulator() string { return inModule("internal/testkit/cudatest/emulator") }
func kernels() string  { return inModule("internal/serving/cuda/kernels") }
func faults() string   { return inModule("internal/testkit/cudatest/testdata/faults.cu") }

func inModule(name string) string {
	at, _ := root() // buildOnce has checked it
	return filepath.Join(at, name)
}

var entry = regexp.MustCompile(`(?m)^\.visible \.entry (\w+)\(`)

// A unit is what the compiler compiles at once.
type unit struct {
	name, source string
}

var kernel = regexp.MustCompile(`(?m)^KERNEL void (\w+)\(`)

// units are the emulator, with all of its files, each kernel's file with the names of its kernels, and the kernels
// that test the emulator.
func units() ([]unit, error) {
	files, err := filepath.Glob(filepath.Join(emulator(), "*.cc"))
	if err != nil {
		return nil, err
	}
	sources := ""
	for _, file := range files {
		sources += fmt.Sprintf("#include %q\n", file)
	}
	all := []unit{{"emulator", sources}}
	text, err := os.ReadFile(faults())
	if err != nil {
		return nil, err
	}
	all = append(all, unit{"faults", string(text) + registered(kernel.FindAllSubmatch(text, -1))})
	files, err = filepath.Glob(filepath.Join(kernels(), "*.ptx"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		ptx, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(file[:len(file)-len(".ptx")])
		all = append(all, unit{name, fmt.Sprintf("#include \"%s.cu\"\n", name) + registered(entry.FindAllSubmatch(ptx, -1))})
	}
	return all, nil
}

// registered makes kernels known to the emulator.
func registered(names [][][]byte) string {
	text := "#include \"registry.h\"\n"
	for _, name := range names {
		text += fmt.Sprintf("EMULATED_KERNEL(%s)\n", name[1])
	}
	return text
}

// headers are what a unit includes, as text, so that it is compiled again when one of them changes.
func (u unit) headers() ([]byte, error) {
	pattern := filepath.Join(kernels(), u.name+".cu")
	if u.name == "emulator" {
		pattern = filepath.Join(emulator(), "*.cc")
	}
	var text bytes.Buffer
	for _, p := range []string{pattern, filepath.Join(emulator(), "*.h"), filepath.Join(kernels(), "*.h")} {
		files, err := filepath.Glob(p)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			text.Write(content)
		}
	}
	return text.Bytes(), nil
}

// compile returns the object file of a unit, which it compiles unless cache has it.
func (u unit) compile(cache string) (string, error) {
	headers, err := u.headers()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(headers, "%s %q %s", u.source, flags, emulator()))
	object := filepath.Join(cache, fmt.Sprintf("%s-%x.o", u.name, sum[:8]))
	if _, err := os.Stat(object); err == nil {
		return object, nil
	}
	arguments := append([]string{"-x", "c++", "-I" + emulator(), "-I" + kernels(), "-c", "-", "-o"}, flags...)
	return object, build(object, u.source, arguments)
}

// build runs g++, whose output option is the last but the flags, and puts the output in its place at once.
func build(output, input string, arguments []string) error {
	temporary, err := os.MkdirTemp(filepath.Dir(output), "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	made := filepath.Join(temporary, filepath.Base(output))
	for i, a := range arguments {
		if a == "-o" {
			arguments = append(append(append([]string{}, arguments[:i+1]...), made), arguments[i+1:]...)
			break
		}
	}
	cmd := exec.Command("g++", arguments...)
	cmd.Stdin = bytes.NewBufferString(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling %s for the emulator: %w\n%s", filepath.Base(output), err, out)
	}
	return os.Rename(made, output)
}

var buildOnce = sync.OnceValues(func() (string, error) {
	if _, err := root(); err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "llmmemory-cudatest")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	all, err := units()
	if err != nil {
		return "", err
	}
	objects, errs := make([]string, len(all)), make([]error, len(all))
	slots := make(chan struct{}, runtime.NumCPU())
	var wg sync.WaitGroup
	for i, u := range all {
		wg.Go(func() {
			slots <- struct{}{}
			objects[i], errs[i] = u.compile(cache)
			<-slots
		})
	}
	wg.Wait()
	names := sha256.New()
	for i := range all {
		if errs[i] != nil {
			return "", errs[i]
		}
		fmt.Fprintln(names, objects[i])
	}
	library := filepath.Join(cache, fmt.Sprintf("libcuda-%x.so", names.Sum(nil)[:8]))
	if _, err := os.Stat(library); err == nil {
		return library, nil
	}
	return library, build(library, "", append([]string{"-shared", "-o"}, objects...))
})

// Library builds the library, unless it was built before, and returns its path.
func Library(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("g++"); err != nil {
		level.SkipQuick(t)
	}
	library, err := buildOnce()
	require.NoError(t, err)
	return library
}
