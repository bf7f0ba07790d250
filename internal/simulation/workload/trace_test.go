package workload

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

func TestEveryTraceFormatIsRecognised(t *testing.T) {
	burst := []Request{
		{Arrival: 0, Prompt: 472, Output: 18},
		{Arrival: 45, Prompt: 1087, Output: 230},
		{Arrival: 45, Prompt: 417, Output: 276},
		{Arrival: 114, Prompt: 1185, Output: 342},
	}
	for _, c := range []struct {
		file, format string
		skipped      int
		want         []Request
	}{
		{"burstgpt.csv", "BurstGPT CSV", 2, burst},
		{"burstgpt.csv.gz", "BurstGPT CSV", 2, burst},
		{"burstgpt_sessions.csv", "BurstGPT CSV", 1, []Request{
			{Arrival: 0, Prompt: 906, Output: 446},
			{Arrival: 51.5, Prompt: 36, Output: 29},
			{Arrival: 83, Prompt: 64, Output: 123},
		}},
		{"azure_2023.csv", "Azure CSV", 0, []Request{
			{Arrival: 0, Prompt: 4808, Output: 10},
			{Arrival: 0.5004, Prompt: 3180, Output: 8},
			{Arrival: 2.25036, Prompt: 110, Output: 27},
		}},
		{"azure_2024.csv", "Azure CSV", 0, []Request{
			{Arrival: 0, Prompt: 2162, Output: 5},
			{Arrival: 0.99007, Prompt: 2399, Output: 6},
			{Arrival: 1.007405, Prompt: 76, Output: 15},
		}},
		{"mooncake.jsonl", "Mooncake JSONL", 0, []Request{
			{Arrival: 0, Prompt: 1955, Output: 52, Hashes: []int64{46, 47, 48, 2353}},
			{Arrival: 3.053, Prompt: 1472, Output: 26, Hashes: []int64{46, 47, 2366}},
			{Arrival: 3.053, Prompt: 512, Output: 1, Hashes: []int64{46}},
			{Arrival: 3.0545, Prompt: 700, Output: 9},
		}},
		{"own.csv", "CSV", 0, []Request{
			{Arrival: 0, Prompt: 100, Output: 20},
			{Arrival: 0.25, Prompt: 7, Output: 3},
			{Arrival: 1.5, Prompt: 1, Output: 1},
		}},
		{"own.jsonl", "JSONL", 0, []Request{
			{Arrival: 0, Prompt: 100, Output: 20},
			{Arrival: 0.25, Prompt: 7, Output: 3},
		}},
	} {
		t.Run(c.file, func(t *testing.T) {
			trace, err := Open(filepath.Join("testdata", "traces", c.file))
			require.NoError(t, err)
			require.Equal(t, c.format, trace.Format())
			got := drain(t, trace)
			require.Len(t, got, len(c.want))
			for i := range got {
				require.InDelta(t, c.want[i].Arrival, got[i].Arrival, 1e-7)
				got[i].Arrival = c.want[i].Arrival
			}
			require.Equal(t, c.want, got)
			require.Equal(t, c.skipped, trace.Skipped)
			require.NoError(t, trace.Close())
		})
	}
}

func TestMooncakeRequestsShareTheTokensOfCommonHashes(t *testing.T) {
	trace, err := Open(filepath.Join("testdata", "traces", "mooncake.jsonl"))
	require.NoError(t, err)
	defer trace.Close()
	all := drain(t, trace)
	ids := make([][]int32, len(all))
	for i := range all {
		ids[i] = Tokens(nil, &all[i], i)
	}
	require.Equal(t, 2*hashTokens, inCommon(ids[0], ids[1]))
	require.Equal(t, 1*hashTokens, inCommon(ids[0], ids[2]))
	require.Zero(t, inCommon(ids[0], ids[3]))
}

const (
	burstHeader = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
	burstRow    = "5,ChatGPT,472,18,490,Conversation log\n"
	azureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	azureRow    = "2023-11-16 18:15:46.6805900,374,44\n"
	ownHeader   = "arrival,prompt,output\n"
	moonRow     = `{"timestamp": 9, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}` + "\n"
	ownRow1     = `{"arrival":9,"prompt":6,"output":5}` + "\n"
)

func TestABadRowIsNamedWithLineAndColumn(t *testing.T) {
	for _, c := range []struct {
		name, text string
		line       int
		says       []string
	}{
		{"empty", "", 1, []string{"empty", "arrival, prompt, output"}},
		{"blank", "\n \r\n", 2, []string{"empty"}},
		{"no header", "1,2,3\n", 1, []string{"unknown format", `"1,2,3"`, "arrival, prompt, output"}},
		{"other header", "time,in,out\n", 1, []string{"unknown format", "ContextTokens"}},
		{"a spreadsheet's", "arrival;prompt;output\n", 1, []string{"unknown format", "separated by commas",
			"\n  a header with arrival, prompt, output (CSV)"}},
		{"ambiguous header", "timestamp,in,out\n", 1, []string{"unknown format"}},
		{"other object", `{"a":1}`, 1, []string{"unknown format"}},
		{"no object", "{arrival:1}", 1, []string{"not a JSON object"}},
		{"an array", "[1,2]", 1, []string{"unknown format"}},
		{"binary", "\x00\x01\x02", 1, []string{"unknown format"}},
		{"missing column", "arrival,prompt\n1,2\n", 1, []string{`no column "output"`}},
		{"missing column of BurstGPT", "Timestamp,Model,Request tokens\n", 1, []string{`no column "Response tokens"`}},
		{"column twice", "arrival,prompt,output,Prompt\n", 1, []string{`"prompt" twice`}},

		{"negative arrival", ownHeader + "-1,2,3\n", 2, []string{`"arrival"`, `"-1" is negative`, "seconds, at least 0"}},
		{"no number", ownHeader + "0,2,3\nx,2,3\n", 3, []string{`"arrival"`, `"x" is not a number`}},
		{"NaN", ownHeader + "NaN,2,3\n", 2, []string{`"arrival"`, "is not a number"}},
		{"Inf", ownHeader + "inf,2,3\n", 2, []string{`"arrival"`, "is too large"}},
		{"too large", ownHeader + "1e999,2,3\n", 2, []string{`"arrival"`, "is too large"}},
		{"empty field", ownHeader + ",2,3\n", 2, []string{`"arrival" is empty`}},
		{"out of order", ownHeader + "1,2,3\n\n0.5,2,3\n", 4, []string{`"arrival"`, "0.5 is before the 1 of the row above",
			"order of arrival"}},
		{"negative prompt", ownHeader + "0,-2,3\n", 2, []string{`"prompt"`, `"-2" is negative`, "from 1 to"}},
		{"very negative prompt", ownHeader + "0,-99999999999999999999,3\n", 2, []string{`"prompt"`, "is negative"}},
		{"no prompt", ownHeader + "0,0,3\n", 2, []string{`"prompt"`, "is too small", "from 1 to"}},
		{"no output", ownHeader + "0,1,0\n", 2, []string{`"output"`, "is too small"}},
		{"half a token", ownHeader + "0,1,2.5\n", 2, []string{`"output"`, `"2.5" is not a whole number`}},
		{"prompt NaN", ownHeader + "0,nan,2\n", 2, []string{`"prompt"`, "is not a whole number"}},
		{"too many tokens", ownHeader + "0,16777217,2\n", 2, []string{`"prompt"`, "is too large", "16777216"}},
		{"far too many tokens", ownHeader + "0,99999999999999999999,2\n", 2, []string{`"prompt"`, "is too large"}},
		{"too few fields", ownHeader + "0,1\n", 2, []string{"2 fields", "wanted 3"}},
		{"too many fields", ownHeader + "0,1,2,3\n", 2, []string{"4 fields", "wanted 3"}},
		{"long line", ownHeader + "0,1," + strings.Repeat("2", longestLine) + "\n", 2, []string{"longer than 1048576 bytes"}},
		{"long value", ownHeader + "0,1," + strings.Repeat("x", 1000) + "\n", 2, []string{`xxx"...`}},

		{"BurstGPT negative", burstHeader + burstRow + "6,GPT-4,-1,5,4,API log\n", 3,
			[]string{`"Request tokens"`, "is negative", "from 0 to"}},
		{"BurstGPT order", burstHeader + burstRow + "4.5,GPT-4,1,5,6,API log\n", 3,
			[]string{`"Timestamp"`, "4.5 is before the 5"}},
		{"BurstGPT order of a failed one", burstHeader + burstRow + "4.5,GPT-4,1,0,1,API log\n", 3,
			[]string{"4.5 is before the 5"}},
		{"BurstGPT fields", burstHeader + "6,GPT-4,1,5,6\n", 2, []string{"5 fields", "wanted 6"}},
		{"Azure time", azureHeader + azureRow + "2023-11-31 18:15:46,1,2\n", 3, []string{`"TIMESTAMP"`, "is not a time",
			"2023-11-16"}},
		{"Azure seconds", azureHeader + "5.5,1,2\n", 2, []string{`"TIMESTAMP"`, "is not a time"}},
		{"Azure order", azureHeader + azureRow + "2023-11-16 18:15:46.6805899,1,2\n", 3,
			[]string{"is before the 2023-11-16 18:15:46.6805900"}},
		{"Azure tokens", azureHeader + "2023-11-16 18:15:46,x,2\n", 2, []string{`"ContextTokens"`}},

		{"Mooncake syntax", moonRow + "{\n", 2, []string{"not a JSON object"}},
		{"Mooncake more behind it", moonRow + `{"timestamp":9,"input_length":6,"output_length":5} 7` + "\n", 2,
			[]string{"not a JSON object"}},
		{"Mooncake NaN", moonRow + `{"timestamp":NaN,"input_length":6,"output_length":5}` + "\n", 2,
			[]string{"not a JSON object"}},
		{"Mooncake array", moonRow + "[1]\n", 2, []string{"not a JSON object"}},
		{"Mooncake column", moonRow + `{"timestamp":9,"input_length":6}` + "\n", 2, []string{`"output_length" is missing`}},
		{"Mooncake string", moonRow + `{"timestamp":9,"input_length":"6","output_length":5}` + "\n", 2,
			[]string{`"input_length"`, "is not a whole number"}},
		{"Mooncake null", moonRow + `{"timestamp":null,"input_length":6,"output_length":5}` + "\n", 2,
			[]string{`"timestamp"`, "is not a number", "milliseconds"}},
		{"Mooncake order", moonRow + `{"timestamp":8,"input_length":6,"output_length":5}` + "\n", 2,
			[]string{`"timestamp"`, "8 is before the 9"}},
		{"Mooncake ids", moonRow + `{"timestamp":9,"input_length":6,"output_length":5,"hash_ids":[1.5]}` + "\n", 2,
			[]string{`"hash_ids"`, "whole numbers"}},
		{"Mooncake too few ids", moonRow + `{"timestamp":9,"input_length":513,"output_length":5,"hash_ids":[1]}` + "\n", 2,
			[]string{`"hash_ids" has 1 ids`, "wanted 2", "513 tokens"}},
		{"Mooncake too many ids", moonRow + `{"timestamp":9,"input_length":512,"output_length":5,"hash_ids":[1,2]}` + "\n",
			2, []string{"2 ids", "wanted 1"}},
		{"own JSON column", `{"arrival":9,"prompt":6}`, 1, []string{`"output" is missing`, "arrival, prompt, output"}},
		{"own JSON zero", ownRow1 + `{"arrival":9,"prompt":0,"output":5}`, 2, []string{`"prompt"`, "is too small"}},
		{"own JSON negative", ownRow1 + `{"arrival":-9,"prompt":1,"output":5}`, 2, []string{`"arrival"`, "is negative"}},
		{"own JSON huge", ownRow1 + `{"arrival":1e999,"prompt":1,"output":5}`, 2, []string{`"arrival"`, "is too large"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := readAll(strings.NewReader(c.text))
			require.ErrorIs(t, err, ErrTrace)
			require.ErrorContains(t, err, fmt.Sprintf("my.csv:%d: ", c.line))
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
			require.Less(t, len(err.Error()), 700)
			require.NotContains(t, err.Error(), "%!")
		})
	}
}

func readAll(r io.Reader) error {
	t, err := read(r, "my.csv")
	if err != nil {
		return err
	}
	_, err = t.summarize(0)
	return err
}

func TestColumnsMayHaveAnyOrderAndCase(t *testing.T) {
	for _, text := range []string{
		"OUTPUT, user,Arrival,\"Prompt\"\n3,x,1,2\n",
		`{"OUTPUT":3,"user":"x","Arrival":1,"Prompt":2}`,
	} {
		trace, err := read(strings.NewReader(text), "my.csv")
		require.NoError(t, err)
		require.Equal(t, []Request{{Prompt: 2, Output: 3}}, drain(t, trace))
	}
}

func TestAnErrorOfATraceIsRepeated(t *testing.T) {
	trace, err := read(strings.NewReader(ownHeader+"0,1,2\nx,1,2\n1,1,2\n"), "my.csv")
	require.NoError(t, err)
	var r Request
	require.NoError(t, trace.Next(&r))
	err = trace.Next(&r)
	require.ErrorIs(t, err, ErrTrace)
	require.Equal(t, err, trace.Next(&r))
}

// Ensure that an error says why a file cannot be read. The error must wrap ErrTrace if the file is damaged. It must not
// wrap it if the file cannot be opened.
func TestUnreadableFilesSayWhy(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "none.csv"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotErrorIs(t, err, ErrTrace)
	_, err = Open(t.TempDir())
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrTrace)

	whole, err := os.ReadFile(filepath.Join("testdata", "traces", "burstgpt.csv.gz"))
	require.NoError(t, err)
	require.NoError(t, readAll(bytes.NewReader(whole)))
	for n := 2; n < len(whole); n++ {
		require.ErrorIs(t, readAll(bytes.NewReader(whole[:n])), ErrTrace, "cut off at %d", n)
	}
	header := bytes.Clone(whole)
	header[2] = 0 // the method of compression
	require.ErrorIs(t, readAll(bytes.NewReader(header)), ErrTrace)
	corrupt := bytes.Clone(whole)
	corrupt[len(corrupt)/2] ^= 0xff
	require.ErrorIs(t, readAll(bytes.NewReader(corrupt)), ErrTrace)
	whole[len(whole)-6] ^= 1 // of the checksum
	err = readAll(bytes.NewReader(whole))
	require.ErrorIs(t, err, ErrTrace)
	require.ErrorContains(t, err, "damaged")

	broken := errors.New("cable")
	err = readAll(io.MultiReader(strings.NewReader(ownHeader+"0,1,2\n"), failing{broken}))
	require.ErrorIs(t, err, broken)
	require.NotErrorIs(t, err, ErrTrace)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestCheckSumsATraceUp(t *testing.T) {
	s, err := Check(filepath.Join("testdata", "traces", "burstgpt.csv"), 0)
	require.NoError(t, err)
	require.Equal(t, Summary{
		Format: "BurstGPT CSV", Requests: 4, Skipped: 2, Span: 114, Taken: 4, TakenSpan: 114,
		MeanPrompt: (472 + 1087 + 417 + 1185) / 4.0, MeanOutput: (18 + 230 + 276 + 342) / 4.0,
	}, s)
	require.Equal(t, 3/114.0, s.Rate())
	s, err = Check(filepath.Join("testdata", "traces", "mooncake.jsonl"), 0)
	require.NoError(t, err)
	require.Equal(t, 3, s.Hashed)
	require.Zero(t, (&Summary{Requests: 5}).Rate())

	path := filepath.Join(t.TempDir(), "a.csv")
	require.NoError(t, os.WriteFile(path, []byte(burstHeader+"5,ChatGPT,9,0,9,API log\n"), 0o644))
	_, err = Check(path, 0)
	require.ErrorIs(t, err, ErrTrace)
	require.ErrorContains(t, err, "1 rows without prompt or answer")
	require.NoError(t, os.WriteFile(path, []byte(burstHeader+burstRow+"bad\n"), 0o644))
	s, err = Check(path, 0)
	require.ErrorIs(t, err, ErrTrace)
	require.Zero(t, s)
}

// rows returns a reader that generates n rows of a trace in a format.
func rows(format string, n int) io.Reader {
	r, w := io.Pipe()
	go func() {
		var b []byte
		if format == "burstgpt" {
			b = append(b, burstHeader...)
		}
		for i := range n {
			switch format {
			case "burstgpt":
				b = fmt.Appendf(b, "%d,ChatGPT,%d,%d,0,API log\n", i, i%2000+1, i%300)
			case "mooncake":
				b = fmt.Appendf(b, `{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": [46, %d, %d]}`+"\n", i,
					1025+i%512, i%300+1, i, i+1)
			}
			if len(b) > 1<<16 || i == n-1 {
				if _, err := w.Write(b); err != nil {
					return
				}
				b = b[:0]
			}
		}
		w.Close()
	}()
	return r
}

func TestAMillionRowsTakeConstantMemory(t *testing.T) {
	level.SkipQuick(t)
	n := level.Pick(100_000, 1_000_000)
	for format, most := range map[string]float64{"burstgpt": 0.01, "mooncake": 30} {
		t.Run(format, func(t *testing.T) {
			// The goroutine that generates the rows also allocates. The test measures this and subtracts it.
			var before, between, after, kept runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			_, err := io.Copy(io.Discard, rows(format, n))
			require.NoError(t, err)
			runtime.ReadMemStats(&between)
			trace, err := read(rows(format, n), format)
			require.NoError(t, err)
			s, err := trace.summarize(0)
			require.NoError(t, err)
			runtime.ReadMemStats(&after)
			runtime.GC()
			runtime.ReadMemStats(&kept)
			require.Equal(t, n, s.Requests+s.Skipped)
			maker := between.Mallocs - before.Mallocs
			each := (float64(after.Mallocs-between.Mallocs) - float64(maker)) / float64(n)
			t.Logf("%.4f allocations a row, %d bytes kept", each, int64(kept.HeapAlloc)-int64(before.HeapAlloc))
			require.LessOrEqual(t, each, most)
			require.Less(t, int64(kept.HeapAlloc)-int64(before.HeapAlloc), int64(longestLine+4*n), "less than a number for each row")
			runtime.KeepAlive(trace)
		})
	}
}

func TestAPipeWithoutAnEndIsGivenUp(t *testing.T) {
	text, err := readAtMost(strings.NewReader("12345"), 5)
	require.NoError(t, err)
	require.Equal(t, "12345", string(text))
	_, err = readAtMost(strings.NewReader("123456"), 5)
	require.ErrorIs(t, err, ErrTrace)
	require.ErrorContains(t, err, "write it to one")
}

// FuzzRead checks that the requests of any file are valid and in the order of arrival. Errors must wrap ErrTrace.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "traces", "*"))
	require.NoError(f, err)
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte(ownHeader + "0,1,-\n"))
	f.Add([]byte(ownRow1 + moonRow))
	f.Fuzz(func(t *testing.T, text []byte) {
		trace, err := read(bytes.NewReader(text), "my.csv")
		last := 0.0
		for err == nil {
			var r Request
			if err = trace.Next(&r); err != nil {
				break
			}
			require.GreaterOrEqual(t, r.Arrival, last)
			require.GreaterOrEqual(t, min(r.Prompt, r.Output), 1)
			if r.Hashes != nil {
				require.Len(t, r.Hashes, (r.Prompt+hashTokens-1)/hashTokens)
			}
			last = r.Arrival
		}
		if err != io.EOF {
			require.ErrorIs(t, err, ErrTrace)
		}
	})
}
