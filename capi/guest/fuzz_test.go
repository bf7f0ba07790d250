package guest_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// A player is a running process of testdata/guest/fuzz.c, which plays one input after the other.
type player struct {
	cmd    *exec.Cmd
	stdin  io.Writer
	out    io.Reader
	stderr bytes.Buffer
}

// players has the running processes. A process is started when it is first needed, and started again if it has
// aborted.
var players = map[string]*player{}

func startPlayer(t *testing.T, w way, strict string) *player {
	t.Helper()
	prog := w.compile(t, "fuzz")
	note([]string{prog})
	p := &player{cmd: exec.Command(prog)}
	p.cmd.Env = append(cleanEnv(t), "LLM_MEMORY_STRICT="+strict)
	p.cmd.Stderr = &p.stderr
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	p.out, err = p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	return p
}

// playBytes plays the input on the library and on the handout's plain algorithm, and requires that their results are
// equal. It returns the number of operations in the input.
func playBytes(t *testing.T, w way, strict string, input []byte) uint32 {
	t.Helper()
	const maxBytes = 1 << 16 // MOST_BYTES
	key := string(w) + strict
	p := players[key]
	if p == nil {
		p = startPlayer(t, w, strict)
		players[key] = p
	}
	input = input[:min(len(input), maxBytes)]
	frame := binary.NativeEndian.AppendUint32(nil, uint32(len(input)))
	_, _ = p.stdin.Write(append(frame, input...)) // that it has ended shows when it is read from
	var operations uint32
	if err := binary.Read(p.out, binary.NativeEndian, &operations); err != nil {
		delete(players, key)
		_ = p.cmd.Wait()
		require.FailNow(t, "the library differs from the handout", "%v: %s", p.cmd.ProcessState, p.stderr.String())
	}
	return operations
}

// FuzzCallsOfTheCLibrary plays bytes of Go's fuzzer. fuzz.c interprets them as calls of the exported functions and as
// writes from outside between the calls. The corpus is the seeds below and the files in testdata/fuzz. The command `go
// test ./capi/guest -run '^$' -fuzz FuzzCallsOfTheCLibrary` adds inputs that fail. The fuzzer does not measure coverage
// of the library, which runs in another process.
func FuzzCallsOfTheCLibrary(f *testing.F) {
	for seed := range byte(8) {
		input := make([]byte, 2<<10)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(input)
		f.Add(input)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		need(t, "gcc")
		for _, strict := range []string{"0", "1"} {
			playBytes(t, shared, strict, input)
		}
	})
}

// More of the same, with random bytes.
func TestRandomCallsOfTheCLibraryAreTheHandouts(t *testing.T) {
	level.SkipNormal(t)
	need(t, "gcc")
	for _, w := range linked {
		played := uint32(0)
		random := rand.NewChaCha8([32]byte{1})
		for range level.Pick(200, 20000) {
			input := make([]byte, 1000)
			_, _ = random.Read(input)
			played += playBytes(t, w, "0", input)
		}
		t.Logf("%s: %d operations", w, played)
	}
}
