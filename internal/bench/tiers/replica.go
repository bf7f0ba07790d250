package main

import (
	"bufio"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"

	"llmmemory/internal/bench/fatal"
)

// A replica is a running server.
type replica struct {
	url string // http://127.0.0.1:PORT
	cmd *exec.Cmd
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// start starts llmserve and waits until it has printed its address. The model is served under the name "m".
func start(args []string) *replica {
	c := exec.Command(command, append([]string{model, "--port", "0", "--kv-cache-gb", "1", "--served-model-name", "m"}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // if the program ends early
	c.Stderr = os.Stderr
	out := fatal.Get(c.StdoutPipe())
	fatal.If(c.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if url := address.FindString(lines.Text()); url != "" {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return &replica{url, c}
		}
	}
	log.Fatal("llmserve does not start")
	return nil
}

// kill ends the server with SIGKILL.
func (r *replica) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

// complete sends a request for a completion, and returns the answer, both as JSON.
func (r *replica) complete(body string) []byte {
	return read(http.Post(r.url+"/v1/completions", "application/json", strings.NewReader(body)))
}

// metrics returns the text of /metrics.
func (r *replica) metrics() []byte { return read(http.Get(r.url + "/metrics")) }

func read(answer *http.Response, err error) []byte {
	fatal.If(err)
	defer answer.Body.Close()
	text := fatal.Get(io.ReadAll(answer.Body))
	if answer.StatusCode != http.StatusOK {
		log.Fatalf("%s: %s", answer.Status, text)
	}
	return text
}
