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

	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

// toolchain returns an archive like those that Go publishes. The go command in it prints a version.
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

// A bareMachine has gcc, the basic programs of Debian, and an apt that offers no Go.
type bareMachine struct{ tools, path, home string }

func newBareMachine(t *testing.T, uid, checksum string) bareMachine {
	t.Helper()
	text, err := os.ReadFile("../.ci/tools")
	require.NoError(t, err)
	replace := func(old, replacement string) {
		re := regexp.MustCompile(old)
		require.Regexp(t, re, string(text))
		text = re.ReplaceAll(text, []byte(replacement))
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

// Ensure that on a machine without Go, root gets the published toolchain if its checksum is right, and that other
// users are shown the commands to type.
func TestAMachineWithoutGoGetsThePublishedToolchain(t *testing.T) {
	level.SkipQuick(t)
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

func (m bareMachine) add(t *testing.T, name, script string) {
	t.Helper()
	path := filepath.Join(m.path, name)
	_ = os.Remove(path)
	if script != "" {
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
}

// oldGo is the program of an older Go, which tries to download the required version and fails.
const oldGo = `case $1 in
env) echo go1.23.4 ;;
*) echo "go: download go1.25 for linux/amd64: x509: certificate signed by unknown authority" >&2; exit 1 ;;
esac`

// Ensure that if an older Go cannot download the required version, the output says why, and does not advise
// to install the same older version.
func TestAGoThatCannotFetchItsSuccessorSaysWhy(t *testing.T) {
	for _, uid := range []string{"0", "1000"} {
		m := newBareMachine(t, uid, hex.EncodeToString(make([]byte, 32)))
		m.add(t, "go", oldGo)
		m.add(t, "apt-cache", "echo golang-1.23-go")
		ok, printed := m.run(t, "http://127.0.0.1:1", "build")
		require.False(t, ok)
		require.Contains(t, printed, "bin/go is go1.23.4, and could not fetch Go 1.25:\n"+
			"go: download go1.25 for linux/amd64: x509: certificate signed by unknown authority\n")
		require.Contains(t, printed, "SSL_CERT_FILE")
		require.NotRegexp(t, "apt-get install.*golang", printed)
		require.Contains(t, printed, "yourself:  curl -fsSLO http://127.0.0.1:1/go1.26.7")
	}
}

// Ensure that a user who may not install packages gets one list of everything that the target needs. The list must
// say which commands root has to run, and which the user.
func TestAUserGetsOneListOfAllThatIsMissing(t *testing.T) {
	const course = " gcc libc6-dev valgrind"
	for _, c := range []struct {
		name, packages, cc string
		needs              []string
		root, yourself     []string // the commands in order, by what they contain
	}{
		{"make", "", "", []string{"build", "grade"}, []string{course, " ca-certificates curl"}, []string{"curl ", "sha256sum", "tar ", "make"}},
		{"make lib", "", "", []string{"build"}, []string{" gcc libc6-dev ca-certificates curl"}, []string{"curl ", "sha256sum", "tar ", "make"}},
		{"make SUBMISSION", "", "", []string{"grade"}, []string{course}, []string{"make"}},
		{"make test", "", "", []string{"test"}, []string{course, " g++ pkg-config gdb chromium"}, []string{"curl ", "sha256sum", "tar ", "make"}},
		{"where apt has a Go", "golang-1.9-go golang-1.24-go golang-1.19-go golang-1.22-go-doc", "", []string{"build", "grade"},
			[]string{course, " ca-certificates golang-1.24-go"}, []string{"make"}},
		{"where its Go is too old", "golang-1.19-go", "", []string{"build"}, []string{"curl"}, []string{"curl ", "sha256sum", "tar ", "make"}},
		{"make CC=clang", "golang-1.24-go", "clang", []string{"build"}, []string{"--no-install-recommends clang libc6-dev ca"}, []string{"make"}},
		{"make CC=clang, graded", "golang-1.24-go", "clang", []string{"build", "grade"}, []string{"--no-install-recommends clang libc6-dev valgrind"}, []string{"make"}},
		{"make test CC=clang", "golang-1.24-go", "clang", []string{"test"}, []string{"--no-install-recommends gcc libc6-dev clang libc6-dev valgrind"}, []string{"make"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newBareMachine(t, "1000", hex.EncodeToString(make([]byte, 32)))
			m.add(t, "gcc", "")
			m.add(t, "curl", "")
			m.add(t, "apt-cache", "[ $1 = pkgnames ] && printf '%s\\n' "+c.packages)
			cmd := exec.Command(m.tools, c.needs...)
			cmd.Env = []string{"PATH=" + m.path, "HOME=" + m.home, "CC=" + c.cc}
			out, err := cmd.CombinedOutput()
			require.Error(t, err)
			commands := func(user string) (found []string) {
				for _, line := range regexp.MustCompile(`(?m)^ +`+user+`: +(.*)`).FindAllStringSubmatch(string(out), -1) {
					found = append(found, line[1])
				}
				return found
			}
			root, yourself := commands("root"), commands("yourself")
			require.Len(t, root, 1, "%s", out)
			for _, part := range c.root {
				require.Contains(t, root[0], part)
			}
			require.Len(t, yourself, len(c.yourself), "%s", out)
			for i, part := range c.yourself {
				require.Contains(t, yourself[i], part)
			}
			require.NotContains(t, root[0], m.home)
		})
	}
}

func TestACompilerThatIsNotThereIsNamed(t *testing.T) {
	m := newBareMachine(t, "0", "")
	m.add(t, "go", "echo go1.26.7")
	for cc, ok := range map[string]bool{"": true, "gcc -pipe": true, "tcc": false, "gcc-x": false} {
		cmd := exec.Command(m.tools, "build")
		cmd.Env = []string{"PATH=" + m.path, "HOME=" + m.home, "CC=" + cc}
		out, err := cmd.CombinedOutput()
		require.Equal(t, ok, err == nil, "%s: %s", cc, out)
		if !ok {
			require.Contains(t, string(out), "CC is "+cc)
		}
	}
}

// Ensure that Go's caches get a folder if HOME is not set or not writable.
func TestABuildWithoutAHomeHasOne(t *testing.T) {
	home := t.TempDir()
	account := t.TempDir()
	for _, c := range []struct{ name, home, account, want string }{
		{"a home", home, account, home},
		{"no home", "", account, account},
		{"a home that is not there", "/nonexistent", account, account},
		{"the root folder", "/", account, account},
		{"nothing", "", "/nonexistent", "build/home"},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := filepath.Join(t.TempDir(), "llm (1)")
			require.NoError(t, os.CopyFS(filepath.Join(folder, ".ci"), os.DirFS("../.ci")))
			makefile, err := os.ReadFile("../Makefile")
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(folder, "Makefile"), append(makefile, "\nprint:\n\t@echo \"$$HOME\"\n"...), 0o644))
			path := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(path, "getent"), []byte("#!/bin/sh\necho user:x:1:1::"+c.account+":/bin/sh\n"), 0o755))
			cmd := exec.Command("make", "-s", "print")
			cmd.Dir = folder
			cmd.Env = []string{"PATH=" + path + ":" + os.Getenv("PATH")}
			if c.home != "" {
				cmd.Env = append(cmd.Env, "HOME="+c.home)
			}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			want := c.want
			if !filepath.IsAbs(want) {
				want = filepath.Join(folder, want)
			}
			require.Equal(t, want+"\n", string(out))
			require.DirExists(t, want)
		})
	}
}
