package internal_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// toolchain is an archive like those that Go publishes, of a go that says which it is.
func toolchain(t *testing.T) []byte {
	t.Helper()
	const program = "#!/bin/sh\necho go1.26.7\n"
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	a := tar.NewWriter(z)
	require.NoError(t, a.WriteHeader(&tar.Header{Name: "go/bin/go", Mode: 0o755, Size: int64(len(program))}))
	_, err := a.Write([]byte(program))
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, z.Close())
	return b.Bytes()
}

// A bare machine has gcc and an apt that has no Go, and what every Debian has.
type bareMachine struct{ tools, path, home string }

func newBareMachine(t *testing.T, uid, checksum string) bareMachine {
	t.Helper()
	text, err := os.ReadFile("../.ci/tools")
	require.NoError(t, err)
	replace := func(old, with string) {
		re := regexp.MustCompile(old)
		require.Regexp(t, re, string(text))
		text = re.ReplaceAll(text, []byte(with))
	}
	replace(`sum=[0-9a-f]{64}`, "sum="+checksum)
	replace(`for go in go /usr/local/go/bin/go`, "for go in go") // which this machine may have
	replace(`/usr/lib/go-1\.\*/bin/go`, "/nonexistent")
	dir := t.TempDir()
	m := bareMachine{filepath.Join(dir, "tools"), filepath.Join(dir, "bin"), filepath.Join(dir, "home")}
	require.NoError(t, os.WriteFile(m.tools, text, 0o755))
	require.NoError(t, os.Mkdir(m.path, 0o755))
	for _, name := range []string{"sh", "cat", "cp", "chmod", "curl", "dirname", "grep", "gzip", "head", "ls", "mkdir", "mktemp", "mv",
		"rm", "sed", "sha256sum", "sort", "tar", "uname"} {
		program, err := exec.LookPath(name)
		if name == "curl" && err != nil {
			t.Skip("curl is not installed")
		}
		require.NoError(t, err)
		require.NoError(t, os.Symlink(program, filepath.Join(m.path, name)))
	}
	for name, script := range map[string]string{"gcc": "exit 0", "id": "echo " + uid, "apt-cache": "exit 0", "apt-get": "exit 0"} {
		require.NoError(t, os.WriteFile(filepath.Join(m.path, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	return m
}

func (m bareMachine) run(t *testing.T, server, argument string) (ok bool, printed string) {
	t.Helper()
	cmd := exec.Command(m.tools, argument)
	cmd.Env = []string{"PATH=" + m.path, "HOME=" + m.home, "GO_DOWNLOAD=" + server}
	out, err := cmd.CombinedOutput()
	return err == nil, string(out)
}

// Ensure that a machine without Go gets what Go publishes, in a folder of the user's,
// if it is what its checksum says, and only as root.
func TestAMachineWithoutGoGetsThePublishedToolchain(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("Go publishes it by other names")
	}
	archive := toolchain(t)
	sum := sha256.Sum256(archive)
	right := hex.EncodeToString(sum[:])
	for _, c := range []struct {
		name, uid, checksum, says string
		asks                      int
		ok                        bool
	}{
		{"root", "0", right, "fetching http://", 1, true},
		{"another archive", "0", hex.EncodeToString(make([]byte, 32)), "did not come as Go publishes it", 1, false},
		{"not root", "1000", right, "curl -fsSLO http://", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked++
				require.Equal(t, "/go1.26.7.linux-"+runtime.GOARCH+".tar.gz", r.URL.Path)
				_, _ = w.Write(archive)
			}))
			defer server.Close()
			m := newBareMachine(t, c.uid, c.checksum)
			ok, printed := m.run(t, server.URL, "build")
			require.Equal(t, c.ok, ok, printed)
			require.Contains(t, printed, c.says)
			require.Equal(t, c.asks, asked)
			installed := filepath.Join(m.home, ".local/share/go1.26.7/go/bin/go")
			_, found := m.run(t, server.URL, "go")
			if !c.ok {
				require.NoFileExists(t, installed)
				require.Empty(t, found)
				require.Contains(t, printed, "sha256sum -c")
				return
			}
			require.Equal(t, installed+"\n", found)
			ok, printed = m.run(t, server.URL, "build")
			require.True(t, ok)
			require.Empty(t, printed, "all is there")
		})
	}
}
