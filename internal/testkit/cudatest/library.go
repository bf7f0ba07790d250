// Package cudatest runs CUDA kernels without a GPU. It builds a shared library in place of NVIDIA's driver
// (libcuda.so.1). The library exports the driver functions that the product uses. It contains the kernels, compiled for
// the host.
//
// The threads of a block are fibers. Only one runs at a time. Some mistakes of a kernel make its launch fail. Examples
// are an access outside memory, a barrier that some threads do not reach, and a thread that returns without waiting for
// its copies. Driver.Failure says which mistake it was.
//
// The library makes other mistakes visible. Memory that a kernel must not read has all bits set, which means NaN for
// every type of floating-point numbers. This is so for new memory, for shared memory, for the bytes around an
// allocation, and for the destination of an asynchronous copy until the kernel has waited for the copy. Work in a
// stream, except the default one, is done only when something waits for it. Driver.Order changes the order of threads
// and blocks. If a result depends on this order, the kernel lacks a barrier.
//
// Driver.Interpret also runs the PTX of the kernels, with testkit/ptx, and compares it with their sources.
package cudatest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

var flags = []string{"-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off"}

// root is the folder of the module: the nearest parent of the working directory with a go.mod.
var root = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("there is no go.mod above the working directory")
		}
	}
	return "", err
})

// The folders of the emulator's sources, of the product's kernels, and of the kernels that test the emulator.
func emulator() string { return inModule("internal/testkit/cudatest/emulator") }
func kernels() string  { return inModule("internal/serving/cuda/kernels") }
func faults() string   { return inModule("internal/testkit/cudatest/testdata/faults.cu") }

func inModule(name string) string {
	dir, _ := root() // variant has checked it
	return filepath.Join(dir, name)
}

var entry = regexp.MustCompile(`(?m)^\.visible \.entry (\w+)\(`)

// A unit is what the compiler compiles at once.
type unit struct {
	name, source string
}

var kernel = regexp.MustCompile(`(?m)^KERNEL void (\w+)\(`)

// absent matches the files of kernels that take more than half of the time of compiling. Without make test-long, the
// library has functions in their place that make a launch fail.
var absent = regexp.MustCompile(`^paged_attention_\w+_(80|96|128|256)$`)

// units returns what is compiled separately: the emulator, each file of kernels, and the kernels that test
// the emulator.
func units() ([]unit, error) {
	files, err := filepath.Glob(filepath.Join(emulator(), "*.cc"))
	if err != nil {
		return nil, err
	}
	sources := ""
	for _, file := range files {
		sources += fmt.Sprintf("#include %q\n", filepath.Base(file))
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
	left := "#include \"driver.h\"\n#include \"registry.h\"\n"
	for _, file := range files {
		ptx, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(file[:len(file)-len(".ptx")])
		if absent.MatchString(name) && !level.Long() {
			for _, found := range entry.FindAllSubmatch(ptx, -1) {
				left += fmt.Sprintf("static void %[1]s() { emulator::record(\"%[1]s is in the emulator of make test-long only\"); }\nEMULATED_KERNEL(%[1]s)\n", found[1])
			}
			continue
		}
		all = append(all, unit{name, fmt.Sprintf("#include \"%s.cu\"\n", name) + registered(entry.FindAllSubmatch(ptx, -1))})
	}
	return append(all, unit{"absent", left}), nil
}

func registered(names [][][]byte) string {
	text := "#include \"registry.h\"\n"
	for _, name := range names {
		text += fmt.Sprintf("EMULATED_KERNEL(%s)\n", name[1])
	}
	return text
}

// headers returns the text of the headers that a unit includes. If one of them changes, the unit is compiled again.
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

// A builder makes one variant of the library.
type builder struct {
	cache string // a folder, whose files are used again
	flags []string
}

// compile returns the object file of a unit. It compiles the unit only if the cache does not have the object file.
func (b builder) compile(u unit) (string, error) {
	headers, err := u.headers()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(headers, "%s %q", u.source, b.flags))
	object := filepath.Join(b.cache, fmt.Sprintf("%s-%x.o", u.name, sum[:8]))
	if _, err := os.Stat(object); err == nil {
		return object, nil
	}
	return object, b.run(object, u.source, "-x", "c++", "-I"+emulator(), "-I"+kernels(), "-c", "-")
}

// run runs g++, and moves the output to its final name when the output is complete.
func (b builder) run(output, input string, arguments ...string) error {
	temporary, err := os.MkdirTemp(b.cache, "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	made := filepath.Join(temporary, "made")
	cmd := exec.Command("g++", append(append(arguments, b.flags...), "-o", made)...)
	cmd.Stdin = bytes.NewBufferString(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling %s for the emulator: %w\n%s", filepath.Base(output), err, out)
	}
	return os.Rename(made, output)
}

func (b builder) library() (string, error) {
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
			objects[i], errs[i] = b.compile(u)
			<-slots
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Append(nil, objects))
	library := filepath.Join(b.cache, fmt.Sprintf("libcuda-%x.so", sum[:8]))
	if _, err := os.Stat(library); err == nil {
		return library, nil
	}
	return library, b.run(library, "", append([]string{"-shared"}, objects...)...)
}

// variant returns a function that returns the path of the library, built with additional compiler flags. The first call
// builds what the cache lacks. Further calls return the same path and build nothing.
func variant(extraFlags ...string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
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
		// Tests of several packages run at once: the lock makes one process build the library while the others wait.
		lock, err := os.Create(filepath.Join(cache, "lock"))
		if err != nil {
			return "", err
		}
		defer lock.Close()
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			return "", err
		}
		return builder{cache, append(append([]string{}, flags...), extraFlags...)}.library()
	})
}

var plain, sanitized = variant(), variant("-fsanitize=address")

// Library returns the path of the library. It builds the library if this was not done before.
func Library(t testing.TB) string { return made(t, plain) }

// Sanitized is like Library, but builds the library with AddressSanitizer. The program that opens the
// library must have AddressSanitizer, too.
func Sanitized(t testing.TB) string { return made(t, sanitized) }

func made(t testing.TB, build func() (string, error)) string {
	t.Helper()
	if _, err := exec.LookPath("g++"); err != nil {
		level.SkipQuick(t)
	}
	library, err := build()
	require.NoError(t, err)
	return library
}
