// Command served combines the measurements of llmserve bench with the times that llmsim calibrate has fitted to other
// measurements, for the figure "served" of llmsim figures: go run ./testdata/bench/served FOLDER MACHINE FILE.
// simulated.sh makes the folder.
package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"llmmemory/internal/simulation/cost"
	"llmmemory/internal/simulation/experiment"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: served FOLDER MACHINE FILE")
	}
	if err := collect(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		log.Fatal(err)
	}
}

func collect(dir, machine, out string) error {
	line, err := cost.OpenMeasured(filepath.Join(dir, "cost.json"))
	if err != nil {
		return err
	}
	line.Name, line.Source = "llmserve", "llmserve bench under three other loads" // and not the folder's name
	served := experiment.Served{Machine: machine, Date: time.Now().UTC().Format(time.DateOnly), Cost: line}
	// predict-RATE-INPUT-OUTPUT-ROUND.json
	files, err := filepath.Glob(filepath.Join(dir, "predict-*.json"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no results predict-*.json in %s", dir)
	}
	for _, file := range files {
		run, err := read(strings.TrimSuffix(file, ".json"))
		if err != nil {
			return err
		}
		served.Runs = append(served.Runs, run)
	}
	text, err := json.Marshal(served)
	if err != nil {
		return err
	}
	return os.WriteFile(out, append([]byte(strings.ReplaceAll(string(text), `{"load"`, "\n"+`{"load"`)), '\n'), 0o644)
}

// read reads a result and the arrivals beside it.
func read(base string) (run experiment.ServedRun, err error) {
	parts := strings.Split(filepath.Base(base), "-")
	if len(parts) != 5 {
		return run, fmt.Errorf("%s: want predict-RATE-INPUT-OUTPUT-ROUND", base)
	}
	run.Load = fmt.Sprintf("%s/s, %s + %s tokens", parts[1], parts[2], parts[3])
	data, err := os.ReadFile(base + ".json")
	if err != nil {
		return run, err
	}
	if err := json.Unmarshal(data, &run.Measured); err != nil {
		return run, fmt.Errorf("%s.json: %w", base, err)
	}
	file, err := os.Open(base + ".arrivals.csv")
	if err != nil {
		return run, err
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return run, err
	}
	for _, row := range rows[1:] {
		at, err := strconv.ParseFloat(row[0], 64)
		if err != nil {
			return run, err
		}
		run.Arrivals = append(run.Arrivals, at)
	}
	run.Prompt, _ = strconv.Atoi(parts[2])
	run.Output, _ = strconv.Atoi(parts[3])
	return run, nil
}
