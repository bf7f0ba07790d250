package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"llmmemory/internal/jobs"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/terminal"
	"llmmemory/internal/view"
)

// viewOptions are the flags of llmsim view.
type viewOptions struct {
	s                  scenario.Scenario
	out, story, course string
	limits             view.Limits
}

func viewCommand() *cobra.Command {
	var o viewOptions
	c := &cobra.Command{
		Use:   "view",
		Short: "Write a page that replays a run's memory, step by step",
		Long: "view writes one HTML file that replays a run: blocks, block tables and queues, iteration by\n" +
			"iteration. It needs no network and no server. Instead of a run it can replay a built-in story, or\n" +
			"calls of the homework's engine: a trace in llmgrade's format, with a call in each line, such as\n" +
			"create e0 1 40 or append e0 2 201. Comments after a # are shown.\n" +
			"llmgrade --trace FILE writes such a trace.\n\n" +
			"Open the page in a browser: space plays it, the arrow keys go step by step, n to the next event.\n\n" +
			strings.Join(terminal.Wrap("Stories: "+strings.Join(view.Stories(), ", ")+"; all: one page with all of them.", 0),
				"\n"),
		Example: "  llmsim view --system sosp --rate 2.2 --from 300 -o run.html\n" +
			"  llmsim view --system vllm-v1 --workload wmt16-5shot --rate 5 --blocks 120 -o prefix.html\n" +
			"  llmsim view --story copy-on-write -o cow.html       # the homework's engine\n" +
			"  llmsim view --story preemption -o preemption.html   # vLLM's rules beside them, 12 blocks\n" +
			"  llmsim view --story all -o stories.html             # all stories\n" +
			"  llmsim view --course calls.trace -o calls.html",
		Args: onlyFlags,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVarP(&o.out, "out", "o", "", "the HTML file")
	f.StringVar(&o.story, "story", "", "a built-in story: see above")
	f.StringVar(&o.course, "course", "", "a trace of the homework's calls, in llmgrade's format")
	f.Float64Var(&o.limits.From, "from", 0, "seconds of the run to skip")
	o.limits.Frames = 300
	f.Var(positive[int]{&o.limits.Frames}, "steps", "largest number of steps to show")
	addRun(f, &o.s)
	return c
}

func (o *viewOptions) run(c *cobra.Command) error {
	given := 0
	for _, name := range []string{"story", "course", "system"} {
		if c.Flags().Changed(name) {
			given++
		}
	}
	switch {
	case o.out == "":
		return errors.New("name the page: -o page.html")
	case given > 1:
		return errors.New("one of --story, --course and --system: a page shows one thing")
	}
	if err := o.s.Check(o.s.Server.System); err != nil {
		return err
	}
	scenes, err := o.scenes(c.Context())
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := view.Write(&page, scenes...); err != nil {
		return err
	}
	if err := jobs.Replace(o.out, page.Bytes()); err != nil {
		return err
	}
	about := fmt.Sprintf("%d stories", len(scenes))
	if len(scenes) == 1 {
		about = fmt.Sprintf("%d steps of %s", len(scenes[0].Recordings[0].Frames), scenes[0].Title)
	}
	fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", o.out, about)
	return nil
}

// scenes returns what the page replays: built-in stories, calls of the homework's engine, or a simulated run.
func (o *viewOptions) scenes(ctx context.Context) (scenes []*view.Scene, err error) {
	var r *view.Recording
	switch {
	case o.story != "":
		names := []string{o.story}
		if o.story == "all" {
			names = view.Stories()
		}
		for _, name := range names {
			s, err := view.Story(name)
			if err != nil {
				return nil, err
			}
			scenes = append(scenes, s)
		}
		return scenes, nil
	case o.course != "":
		r, err = readCalls(o.course)
	default:
		r, err = recordRun(ctx, o.s, o.limits)
	}
	if err != nil {
		return nil, err
	}
	return []*view.Scene{view.Alone(r)}, nil
}

func readCalls(path string) (*view.Recording, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := view.Course(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

func recordRun(ctx context.Context, s scenario.Scenario, limits view.Limits) (*view.Recording, error) {
	plan, err := scenario.Open(s)
	if err != nil {
		return nil, err
	}
	s = plan.Scenario
	v := &s.Server
	recording := &view.Recording{
		Title:  fmt.Sprintf("%s, %s", v.System, requestsOf(&s)),
		System: v.System + ": " + plan.System.About,
		Note: "A request's number is used again when it has left. " + plan.About + ". " + plan.Model.Describe() +
			", " + plan.Model.Constants() + ".",
		BlockSize: v.BlockSize, NumGPUBlocks: v.NumGPUBlocks, NumCPUBlocks: v.NumCPUBlocks,
	}
	switch {
	case plan.System.Memory == sim.Static: // a block is a place in the batch
		recording.BlockSize, recording.NumGPUBlocks, recording.NumCPUBlocks = v.MaxModelLen, v.BatchSize, 0
	case plan.System.NullBlock: // NumGPUBlocks of the server does not count it
		recording.NumGPUBlocks++
		recording.Held = view.NullBlock
	}
	if !plan.System.UsesCPUBlocks {
		recording.NumCPUBlocks = 0
	}
	observe := func(scheduler serve.Scheduler) (sim.Observer, error) {
		return view.NewRecorder(recording, scheduler, limits)
	}
	if _, err := plan.Run(ctx, observe, nil); err != nil && !errors.Is(err, view.ErrFull) {
		return nil, err
	}
	if len(recording.Frames) == 0 {
		return nil, fmt.Errorf("nothing happens after --from %g", limits.From)
	}
	return recording, nil
}

func requestsOf(s *scenario.Scenario) string {
	if s.Trace != "" {
		return filepath.Base(s.Trace)
	}
	return fmt.Sprintf("%s at %g requests/s", cmp.Or(s.Workload, "random lengths"), s.Rate)
}
