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

// output is a file of results, with what is not a result between the lines.
const sample = `commit: abc
cpu: 2 x AMD

BenchmarkColdStart/pods=10/bare 1 0.68 s
BenchmarkColdStart/pods=10/agent 1 0.70 s 0.30 cpu-s
BenchmarkColdStart/pods=10/bare 1 0.75 s
BenchmarkColdStart/pods=10/agent 1 0.79 s 0.30 cpu-s
BenchmarkColdStart/pods=10/bare 1 0.70 s
BenchmarkColdStart/pods=10/agent 1 0.728 s 0.36 cpu-s
BenchmarkRestart/pods=10/bare 1 160 ms 240 ms-p99
BenchmarkRestart/pods=10/kubelet 1 950 ms 990 ms-p99
BenchmarkRelistInMemory/pods=1000-2       	  100000	       100.0 ns/op
PASS
`

func TestParse(t *testing.T) {
	all, err := parse(sample)
	require.NoError(t, err)
	require.Len(t, all, 4)
	require.Equal(t, map[string][]float64{"s": {0.7, 0.79, 0.728}, "cpu-s": {0.3, 0.3, 0.36}},
		all[key{"ColdStart", 10, "agent"}])
	require.Equal(t, "commit: abc\ncpu: 2 x AMD\n", config(sample))
	require.Equal(t, "BenchmarkRestart/pods=10 1 950 ms 990 ms-p99\n", linesOf(sample, "kubelet"))

	_, err = parse("BenchmarkIdle/pods=10/agent 1 much MB\n")
	require.ErrorContains(t, err, "BenchmarkIdle/pods=10/agent")
}

func TestTables(t *testing.T) {
	all, err := parse(sample)
	require.NoError(t, err)
	require.Equal(t, `| ColdStart, 10 pods | bare client | minikubelet |
|---|---|---|
| cpu-s | | 0.300 ± 20 % |
| s | 0.700 ± 7 % | 0.728 ± 9 % (1.04 ± 1 %) |

| Restart, 10 pods | bare client | kubelet |
|---|---|---|
| ms | 160 | 950 (5.94) |
| ms-p99 | 240 | 990 (4.12) |

`, tables(all))
}

// TestPage asserts that the page has the pictures, that these are well-formed, and that all is the same each time.
func TestPage(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "run.txt")
	require.NoError(t, os.WriteFile(file, []byte(sample), 0o644))
	require.NoError(t, page(dir, []string{file}))
	text, err := os.ReadFile(filepath.Join(dir, "results.md"))
	require.NoError(t, err)
	for _, want := range []string{"\ncommit: abc\n", "](start.svg)", "](restart.svg)",
		"| ms-p99 | 240 | 990 (4.12) |"} {
		require.Contains(t, string(text), want)
	}
	require.NotContains(t, string(text), "idle.svg", "a chart without points is not drawn")

	later := filepath.Join(t.TempDir(), "later.txt")
	require.NoError(t, os.WriteFile(later, []byte("BenchmarkRestart/pods=10/agent 1 100 ms\n"), 0o644))
	replaced := t.TempDir()
	require.NoError(t, page(replaced, []string{file, later}))
	text, err = os.ReadFile(filepath.Join(replaced, "results.md"))
	require.NoError(t, err)
	require.Contains(t, string(text), "| Restart, 10 pods | minikubelet |\n|---|---|\n| ms | 100 |\n")
	require.Contains(t, string(text), "| ColdStart, 10 pods |")

	again := t.TempDir()
	require.NoError(t, page(again, []string{file}))
	for _, name := range []string{"start.svg", "restart.svg", "results.md"} {
		first, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		second, err := os.ReadFile(filepath.Join(again, name))
		require.NoError(t, err)
		require.Equal(t, string(first), string(second), name)
		if strings.HasSuffix(name, ".svg") {
			require.Contains(t, wellFormed(t, first), "bare client", name)
			require.Contains(t, string(first), "prefers-color-scheme: dark", name)
		}
	}
	require.NoError(t, os.WriteFile(file, []byte("PASS\n"), 0o644))
	require.Error(t, page(dir, []string{file}), "a file without results")
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
