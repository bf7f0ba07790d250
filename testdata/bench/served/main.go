// Command served writes a file of measurements. The command "llmsim figures" draws them in its figure "served". The
// file contains the results of "llmserve bench", and the costs that "llmsim calibrate" fitted to other runs. Usage:
//
//	go run ./testdata/bench/served FOLDER MACHINE FILE
//
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
	"llmmemory/testdata/bench/fatal"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 4 {
		log.Fatal("usage: served FOLDER MACHINE FILE")
	}
	dir := os.Args[1]
	line := fatal.Get(cost.OpenMeasured(filepath.Join(dir, "cost.json")))
	line.Name, line.Source = "llmserve", "llmserve bench under three other loads" // and not the folder's name
	served := experiment.Served{Machine: os.Args[2], Date: time.Now().UTC().Format(time.DateOnly), Cost: line}
	// predict-RATE-INPUT-OUTPUT-ROUND.json
	files := fatal.Get(filepath.Glob(filepath.Join(dir, "predict-*.json")))
	if len(files) == 0 {
		log.Fatalf("no results predict-*.json in %s", dir)
	}
	for _, file := range files {
		served.Runs = append(served.Runs, read(strings.TrimSuffix(file, ".json")))
	}
	text := strings.ReplaceAll(string(fatal.Get(json.Marshal(served))), `{"load"`, "\n"+`{"load"`)
	fatal.If(os.WriteFile(os.Args[3], []byte(text+"\n"), 0o644))
}

func read(base string) (run experiment.ServedRun) {
	parts := strings.Split(filepath.Base(base), "-")
	if len(parts) != 5 {
		log.Fatalf("%s: want predict-RATE-INPUT-OUTPUT-ROUND", base)
	}
	run.Load = fmt.Sprintf("%s/s, %s + %s tokens", parts[1], parts[2], parts[3])
	if err := json.Unmarshal(fatal.Get(os.ReadFile(base+".json")), &run.Measured); err != nil {
		log.Fatalf("%s.json: %v", base, err)
	}
	file := fatal.Get(os.Open(base + ".arrivals.csv"))
	defer file.Close()
	for _, row := range fatal.Get(csv.NewReader(file).ReadAll())[1:] {
		run.Arrivals = append(run.Arrivals, fatal.Get(strconv.ParseFloat(row[0], 64)))
	}
	run.Prompt, _ = strconv.Atoi(parts[2])
	run.Output, _ = strconv.Atoi(parts[3])
	return run
}
