package guest_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

func files(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, path)
		}
		return err
	}))
	return found
}

func buildWith(t *testing.T, libdir string, env ...string) {
	t.Helper()
	need(t, "pkg-config")
	flags := strings.Fields(succeed(t, t.TempDir(), env, "pkg-config", "--cflags", "--libs", "llm_memory").stdout)
	dir := t.TempDir()
	command := append([]string{"gcc"}, strings.Fields(courseFlags)...)
	command = append(command, "-DWITH_EXT", source("many.c"), "-o", "prog")
	succeed(t, dir, nil, append(command, flags...)...)
	succeed(t, dir, []string{"LD_LIBRARY_PATH=" + libdir}, filepath.Join(dir, "prog"))
}

func TestBothLibrariesBuildInAFolderWithAnyNameAndWithAnyCompiler(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	need(t, "gcc")
	folder := filepath.Join(t.TempDir(), "llm (1) [it's]") // as browsers name downloads
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	for _, entry := range entries {
		src, dst := filepath.Join(root, entry.Name()), filepath.Join(folder, entry.Name())
		switch {
		case entry.Name() == ".git" || entry.Name() == "build":
		case entry.IsDir():
			require.NoError(t, os.CopyFS(dst, os.DirFS(src)))
		default:
			copyFile(t, src, dst)
		}
	}
	made := []string{"build/libllm_memory.so", "build/libllm_memory.a", "build/libllm_cache.so", "build/libllm_cache.a"}
	if !level.Exhaustive() {
		made = made[:1] // the recipes of the other libraries name the folder less often, in the same words
	}
	// CC names the compiler. The first gcc in the PATH is a script that fails. So the test notices if make calls gcc
	// instead of CC.
	gcc, err := exec.LookPath("gcc")
	require.NoError(t, err)
	tools := t.TempDir()
	for name, script := range map[string]string{"another": `exec "` + gcc + `" "$@"`, "gcc": "echo gcc was called >&2; exit 1"} {
		require.NoError(t, os.WriteFile(filepath.Join(tools, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	r := runMake(t, append([]string{"-C", folder, "CC=another", "PATH=" + tools + ":" + os.Getenv("PATH")}, made...)...)
	require.Zero(t, r.status, r.stderr)
	for _, library := range made {
		require.FileExists(t, filepath.Join(folder, library))
	}
	// The Makefile must not contain $(CURDIR), and exports.go must not contain ${SRCDIR}. make and cgo would insert the
	// name of the folder as text, and quotes or spaces in the name could break a command. These two checks also cover the
	// libraries that were not built above.
	require.NotContains(t, read(t, folder, "Makefile"), "CURDIR")
	require.NotContains(t, read(t, folder, "capi/cache/exports.go"), "SRCDIR")
}

func TestAnInstalledLibraryIsFoundByPkgConfig(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	t.Run("in a staging folder", func(t *testing.T) {
		stage := t.TempDir()
		options := []string{"PREFIX=/usr", "DESTDIR=" + stage}
		r := runMake(t, append([]string{"install"}, options...)...)
		require.Zero(t, r.status, r.stderr)
		libdir := filepath.Join(stage, "usr", "lib")
		buildWith(t, libdir, "PKG_CONFIG_PATH="+filepath.Join(libdir, "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR="+stage,
			"PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1", "PKG_CONFIG_ALLOW_SYSTEM_LIBS=1")
		r = runMake(t, append([]string{"uninstall"}, options...)...)
		require.Zero(t, r.status, r.stderr)
		require.Empty(t, files(t, stage))
	})
	t.Run("under a prefix of one's own", func(t *testing.T) {
		prefix := filepath.Join(t.TempDir(), "opt")
		r := runMake(t, "install", "PREFIX="+prefix)
		require.Zero(t, r.status, r.stderr)
		libdir := filepath.Join(prefix, "lib")
		buildWith(t, libdir, "PKG_CONFIG_PATH="+filepath.Join(libdir, "pkgconfig"))
		t.Run("whose drop-in needs no copy of the library", func(t *testing.T) {
			dir := t.TempDir()
			homework(t, dir, "scenario")
			copyFile(t, filepath.Join(prefix, "share", "llm_memory", "llm_memory.c"), filepath.Join(dir, "llm_memory.c"))
			line := append([]string{"gcc"}, strings.Fields(courseFlags)...)
			succeed(t, dir, nil, append(line, "llm_memory.c", "grader.c", "-o", "prog")...)
			succeed(t, dir, nil, filepath.Join(dir, "prog"))
		})
		r = runMake(t, "uninstall", "PREFIX="+prefix)
		require.Zero(t, r.status, r.stderr)
		require.Empty(t, files(t, prefix))
		require.NoDirExists(t, filepath.Join(prefix, "share", "llm_memory"))
	})
}
