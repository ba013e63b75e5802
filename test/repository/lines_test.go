package repository_test

import (
	"go/scanner"
	"go/token"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

// TestLines asserts that lines of code, but for tests, have at most 120 columns, where a tab is 4. Strings, and code in
// comments, may be longer.
func TestLines(t *testing.T) {
	eachGoFile(t, func(path string, source []byte) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		exempt := linesWithStrings(source)
		for i, line := range strings.Split(string(source), "\n") {
			columns := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
			if columns > 120 && !exempt[i+1] && !strings.HasPrefix(strings.TrimLeft(line, "\t"), "//\t") {
				assert.Failf(t, "long line", "%s:%d has %d columns", path, i+1, columns)
			}
		}
	})
}

// linesWithStrings returns the lines that have a string of over 30 characters, or a part of one.
func linesWithStrings(source []byte) map[int]bool {
	lines, set := map[int]bool{}, token.NewFileSet()
	file := set.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok == token.STRING && len(literal) > 30 {
			for i := range strings.Count(literal, "\n") + 1 {
				lines[file.Line(pos)+i] = true
			}
		}
	}
}
