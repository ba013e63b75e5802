package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// output is as "go test -bench" prints it, with what is not a result between the lines.
const output = `goos: linux
BenchmarkColdStart/pods=10/bare-2         	       3	         0.700 s	         0.750 s-max	         0.680 s-min
BenchmarkColdStart/pods=10/agent-2        	       3	         1.040 ratio	         0.728 s	         0.790 s-max	         0.700 s-min
--- BENCH: BenchmarkColdStart/pods=10/agent-2
    bench_test.go:1: 3 rounds of 10 s
BenchmarkColdStart/pods=100/bare          	       3	         7.000 s	         7.100 s-max	         6.900 s-min
BenchmarkColdStart/pods=100/kubelet-2     	       3	        10.00 s	        10.10 s-max	         9.900 s-min
BenchmarkIdle/pods=10/bare-2              	       1	         1.200 containerd-alone-%	         0.1000 noise-%
BenchmarkIdle/pods=10/agent-2             	       1	        30.10 MB	        -0.010 containerd-%	         1.100 containerd-alone-%	         0.0500 cpu-%	         0.2000 noise-%
BenchmarkIdle/pods=10/kubelet-2           	       1	       110.0 MB	         0.400 containerd-%	         3.4 cpu-%
BenchmarkRemoval/pods=300/bare-2          	       1	       300.0 errors	        44.00 s	        44.00 s-max	        44.00 s-min	        40.00 s-stopped	       300.0 sandbox-stops
BenchmarkRemoval/pods=300/agent-2         	       1	         2.100 cpu-s	         0 errors	        13.00 pod-cpu-ms	         0.886 ratio	        39.00 s	        39.00 s-max	        39.00 s-min	        17.00 s-stopped	       300.0 sandbox-stops
BenchmarkRelistInMemory/pods=1000-2       	  100000	       100.0 ns/op
BenchmarkColdStart/pods=10/bare-2         	       3	         0.710 s	         0.750 s-max	         0.680 s-min
PASS
ok  	github.com/kubeletkit/kubeletkit/test/e2e	10.0s
`

func TestParse(t *testing.T) {
	all, err := parse(strings.NewReader(output))
	require.NoError(t, err)
	require.Len(t, all, 9)
	require.Equal(t, map[string]float64{"ratio": 1.04, "s": 0.728, "s-max": 0.79, "s-min": 0.7},
		all[key{"ColdStart", 10, "agent"}])
	require.Equal(t, 7.0, all[key{"ColdStart", 100, "bare"}]["s"], "one processor: the name has no suffix")
	require.Equal(t, 0.71, all[key{"ColdStart", 10, "bare"}]["s"], "the later of two lines counts")

	_, err = parse(strings.NewReader("BenchmarkIdle/pods=10/agent-2 1 much MB\n"))
	require.ErrorContains(t, err, "BenchmarkIdle/pods=10/agent-2")
}

// TestRun asserts the files and tables of an input, and that they are well-formed and the same
// each time.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	var tables bytes.Buffer
	require.NoError(t, run(strings.NewReader(output), &tables, dir))
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	require.Equal(t, []string{"idle.svg", "memory.svg", "removal.svg", "start.svg", "stopped.svg"}, files,
		"a chart without points is not drawn")
	require.Contains(t, tables.String(), `| pods | | s | s-min | s-max | ratio |
|---|---|---|---|---|---|
| 10 | bare client | 0.710 | 0.680 | 0.750 | |
| | minikubelet | 0.728 | 0.700 | 0.790 | 1.04 |
| 100 | bare client | 7.00 | 6.90 | 7.10 | |
| | kubelet | 10.0 | 9.90 | 10.1 | |
`)
	require.Contains(t, tables.String(), `| pods | | s | ratio | s-stopped | cpu-s | pod-cpu-ms | sandbox-stops | errors |
|---|---|---|---|---|---|---|---|---|
| 300 | bare client | 44.0 | | 40.0 | | | 300 | 300 |
| | minikubelet | 39.0 | 0.886 | 17.0 | 2.10 | 13.0 | 300 | 0 |
`)

	for _, name := range files {
		svg, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		texts := wellFormed(t, svg)
		require.Contains(t, texts, "minikubelet", name)
		require.Contains(t, texts, "kubelet", name)
		require.Equal(t, name != "idle.svg" && name != "memory.svg", strings.Contains(texts, "bare client"),
			"%s: the bare client has no CPU and no memory", name)
		require.Contains(t, string(svg), "prefers-color-scheme: dark", name)

		again := t.TempDir()
		require.NoError(t, run(strings.NewReader(output), io.Discard, again))
		second, err := os.ReadFile(filepath.Join(again, name))
		require.NoError(t, err)
		require.Equal(t, string(svg), string(second), "%s: the same input, the same file", name)
	}

	require.Error(t, run(strings.NewReader("PASS\n"), io.Discard, t.TempDir()), "an input without results")
}

// TestScale asserts that all values are on the axis, which has a few round ticks.
func TestScale(t *testing.T) {
	for _, most := range []float64{0.004, 0.7, 1, 7, 9.99, 52, 100, 956} {
		s := chart{}.scale([]line{{points: []point{{1, most / 3, most / 4, most}}}})
		require.Zero(t, s.share(0))
		require.LessOrEqual(t, s.share(most), 1.0, "%g", most)
		require.Greater(t, s.share(most), 0.6, "%g: the highest value is far up", most)
		require.Equal(t, 1.0, s.share(s.ticks[len(s.ticks)-1]))
		require.GreaterOrEqual(t, len(s.ticks), 4, "%g", most)
		require.LessOrEqual(t, len(s.ticks), 8, "%g", most)
	}
	s := chart{logarithmic: true}.scale([]line{{points: []point{{1, 0.05, 0.05, 0.05}, {2, 3.4, 3.4, 3.4}}}})
	require.InDeltaSlice(t, []float64{0.01, 0.1, 1, 10}, s.ticks, 1e-9)
	require.InDelta(t, 1.0/3, s.share(0.1), 1e-9)
}

// wellFormed returns the text of the document.
func wellFormed(t *testing.T, document []byte) string {
	t.Helper()
	var text strings.Builder
	for d := xml.NewDecoder(bytes.NewReader(document)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		require.NoError(t, err)
		if data, ok := token.(xml.CharData); ok {
			text.Write(data)
		}
	}
}
