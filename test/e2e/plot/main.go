// Plot reads the output of the benchmarks of test/e2e on its standard input, draws each measured
// quantity against the number of pods as an SVG file, and prints the numbers as tables
// in Markdown:
//
//	go test -run '^$' -bench . -benchtime 3x -timeout 2h . | tee bench.txt
//	go run ./plot -o ../../docs/contribute/performance <bench.txt
//
// The same input gives the same files, byte by byte.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("o", ".", "the directory that the SVG files are written to")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

// run writes a file for each chart that the input has points for, and its table.
func run(in io.Reader, tables io.Writer, dir string) error {
	results, err := parse(in)
	if err != nil {
		return err
	}
	drawn := 0
	for _, chart := range charts {
		lines := chart.lines(results)
		if len(lines) == 0 {
			continue
		}
		drawn++
		path := filepath.Join(dir, chart.file)
		if err := os.WriteFile(path, chart.svg(lines), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(tables, "%s: %s\n\n%s\n", path, chart.title, chart.table(results, lines))
	}
	if drawn == 0 {
		return fmt.Errorf("the input has no results of the benchmarks that are drawn")
	}
	return nil
}
