package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

var update = flag.Bool("update", false, "write testdata/agents")

// An agentCommand is how an agent is installed and run.
type agentCommand struct {
	npm    string                                // package and version
	setup  string                                // script of the package that completes its installation, or ""
	args   []string                              // of the command
	env    func(server string) []string          // besides HOME and PATH
	config func(server string) map[string]string // files of HOME
}

// A recorder is a proxy that keeps the requests that an agent sends to a server.
type recorder struct {
	mu       sync.Mutex
	all      []recordedRequest
	statuses []int
}

func (r *recorder) start(t *testing.T, server string) (address string) {
	target, err := url.Parse(server)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	proxy.ModifyResponse = func(a *http.Response) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.statuses = append(r.statuses, a.StatusCode)
		return nil
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		kept := recordedRequest{Method: request.Method, Path: request.URL.RequestURI(), Header: map[string]string{}, Body: string(body)}
		for _, name := range []string{"Accept", "Content-Type", "Content-Encoding", "User-Agent", "Anthropic-Version", "Anthropic-Beta", "Originator"} {
			if value := request.Header.Get(name); value != "" {
				kept.Header[name] = value
			}
		}
		r.mu.Lock()
		r.all = append(r.all, kept)
		r.mu.Unlock()
		proxy.ServeHTTP(w, request)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

var (
	jsonText = regexp.MustCompile(`"((?:[^"\\]|\\.)*)"(\s*:)?`)
	letters  = regexp.MustCompile(`\\(?:u....|.)|[A-Za-z]`)
	uuid     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	prose    = regexp.MustCompile(`^(description|text|content|instructions|output|title|system|message)$`)
)

// withoutProse replaces the letters of descriptions and of long texts: what an agent says to its model is not what is
// tested, and belongs to others. The length, the structure and the names stay.
func withoutProse(body string) string {
	key := ""
	return jsonText.ReplaceAllStringFunc(body, func(literal string) string {
		parts := jsonText.FindStringSubmatch(literal)
		if parts[2] != "" {
			key = parts[1]
			return literal
		}
		if !prose.MatchString(key) || len(parts[1]) < 60 && key != "description" || strings.HasPrefix(parts[1], "x-anthropic-billing-header") {
			return literal
		}
		return letters.ReplaceAllStringFunc(literal, func(s string) string {
			if len(s) > 1 {
				return s
			}
			return "x"
		})
	})
}

// Ensure that agents, as they come, finish a task of three calls. With -update, their requests are recorded.
func TestAgentsFinishATask(t *testing.T) {
	level.SkipNormal(t)
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("npm is not installed, so no agents are run")
	}
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	for _, task := range agentTasks {
		t.Run(task.agent, func(t *testing.T) {
			command := agentCommands[task.agent]
			packages := filepath.Join(cache, "llmserve-agents", strings.ReplaceAll(command.npm, "/", "-"))
			modules := filepath.Join(packages, "node_modules")
			if _, err := os.Stat(filepath.Join(modules, ".bin", command.args[0])); err != nil {
				install := exec.CommandContext(t.Context(), npm, "install", "--no-audit", "--no-fund", "--prefix", packages, command.npm)
				if out, err := install.CombinedOutput(); err != nil {
					t.Skipf("npm cannot install %s, so it is not run: %v\n%s", command.npm, err, out)
				}
			}
			if command.setup != "" {
				setup := exec.CommandContext(t.Context(), "node", filepath.Base(command.setup))
				setup.Dir = filepath.Join(modules, filepath.Dir(command.setup))
				out, err := setup.CombinedOutput()
				require.NoError(t, err, string(out))
			}
			task.run(t, command, filepath.Join(modules, ".bin"))
		})
	}
}

func (a agentTask) run(t *testing.T, command agentCommand, commands string) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	dir := filepath.Join(home, "project")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "notes.txt"), []byte(agentNotes), 0o644))
	s := a.inFolder(dir).serve(t)
	var r recorder
	address := r.start(t, strings.TrimSuffix(s.url, "/v1"))
	for name, content := range command.config(address) {
		path := filepath.Join(home, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	c := exec.CommandContext(t.Context(), filepath.Join(commands, command.args[0]), command.args[1:]...)
	c.Dir = dir
	none := "http://127.0.0.1:9" // a proxy that does not exist, so that nothing else is reached
	c.Env = append([]string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TERM=dumb", "HTTP_PROXY=" + none, "HTTPS_PROXY=" + none, "http_proxy=" + none,
		"https_proxy=" + none, "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1"}, command.env(address)...)
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), agentText)
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.all[len(r.all)-1].Body
	copied, err := os.ReadFile(filepath.Join(dir, "copy.txt"))
	require.NoError(t, err, "%s\n%s", out, last[max(0, len(last)-4096):])
	require.Equal(t, agentNotes, string(copied))
	for i, status := range r.statuses {
		require.Equal(t, http.StatusOK, status, "%s\n%s", out, r.all[i].Path)
	}
	if *update {
		writeRecordings(t, a.agent, dir, home, r.all)
	}
}

func writeRecordings(t *testing.T, agent, dir, home string, all []recordedRequest) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	for _, r := range all {
		r.Body = strings.NewReplacer(dir, agentFolder, home, filepath.Dir(agentFolder)).Replace(r.Body)
		r.Body = uuid.ReplaceAllString(withoutProse(r.Body), "00000000-0000-4000-8000-000000000000")
		require.NoError(t, e.Encode(r))
	}
	path, err := filepath.Abs(filepath.Join("testdata", "agents", agent+".jsonl.bz2"))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	var file bytes.Buffer
	c := exec.CommandContext(t.Context(), "bzip2", "-9")
	c.Stdin, c.Stdout = &text, &file
	require.NoError(t, c.Run())
	require.NoError(t, os.WriteFile(path, file.Bytes(), 0o644))
}

var agentCommands = map[string]agentCommand{
	"claude-code": {
		npm: "@anthropic-ai/claude-code@2.1.197", setup: "@anthropic-ai/claude-code/install.cjs",
		args: []string{"claude", "-p", agentPrompt, "--allowedTools", "Read,Write,Bash"},
		env: func(server string) []string {
			return []string{"ANTHROPIC_BASE_URL=" + server, "ANTHROPIC_MODEL=scripted", "ANTHROPIC_SMALL_FAST_MODEL=scripted", "ANTHROPIC_AUTH_TOKEN=none",
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}
		},
		config: func(string) map[string]string { return nil },
	},
	"codex": {
		npm:  "@openai/codex@0.171.0",
		args: []string{"codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", agentPrompt},
		env:  func(string) []string { return nil },
		config: func(server string) map[string]string {
			return map[string]string{".codex/config.toml": "model = \"scripted\"\nmodel_provider = \"local\"\n[model_providers.local]\nname = \"local\"\n" +
				"base_url = \"" + server + "/v1\"\nwire_api = \"responses\"\n"}
		},
	},
	"opencode": {
		npm: "opencode-ai@1.18.33", setup: "opencode-ai/postinstall.mjs",
		args: []string{"opencode", "run", "--model", "local/scripted", agentPrompt},
		env: func(string) []string {
			return []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1"}
		},
		config: func(server string) map[string]string {
			return map[string]string{"project/opencode.json": `{"$schema": "https://opencode.ai/config.json", "share": "disabled", "provider": {"local": {
				"npm": "@ai-sdk/openai-compatible", "name": "local", "options": {"baseURL": "` + server + `/v1"}, "models": {"scripted": {"name": "scripted"}}}}}`}
		},
	},
}
