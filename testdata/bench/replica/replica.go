// Package replica starts llmserve for measurements over HTTP. Any error ends the program.
package replica

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

	"llmmemory/testdata/bench/fatal"
)

// A Replica is a running server.
type Replica struct {
	URL string // http://127.0.0.1:PORT
	cmd *exec.Cmd
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// Start starts llmserve and waits until it has printed its address. The model is served under the name "m".
func Start(llmserve, model string, args ...string) *Replica {
	c := exec.Command(llmserve, append([]string{model, "--port", "0", "--kv-cache-gb", "1", "--served-model-name", "m"}, args...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // if the program ends early
	c.Stderr = os.Stderr
	out := fatal.Get(c.StdoutPipe())
	fatal.If(c.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if url := address.FindString(lines.Text()); url != "" {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return &Replica{url, c}
		}
	}
	log.Fatal("llmserve does not start")
	return nil
}

// Kill ends the server with SIGKILL.
func (r *Replica) Kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
}

// Complete sends a request for a completion, and returns the answer, both as JSON.
func (r *Replica) Complete(body string) []byte {
	return read(http.Post(r.URL+"/v1/completions", "application/json", strings.NewReader(body)))
}

// Metrics returns the text of /metrics.
func (r *Replica) Metrics() []byte { return read(http.Get(r.URL + "/metrics")) }

func read(answer *http.Response, err error) []byte {
	fatal.If(err)
	defer answer.Body.Close()
	text := fatal.Get(io.ReadAll(answer.Body))
	if answer.StatusCode != http.StatusOK {
		log.Fatalf("%s: %s", answer.Status, text)
	}
	return text
}
