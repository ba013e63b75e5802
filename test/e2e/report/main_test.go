package main

import (
	"strings"
	"testing"
)

const run = `go: downloading example.com/x v1.0.0
{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"run","Package":"p","Test":"TestA/b"}
{"Action":"output","Package":"p","Test":"TestA/b","Output":"    p_test.go:7: needs root\n"}
{"Action":"output","Package":"p","Test":"TestA/b","Output":"    --- SKIP: TestA/b (0.00s)\n"}
{"Action":"skip","Package":"p","Test":"TestA/b","Elapsed":0}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":2.5}
{"Action":"output","Package":"p","Test":"TestC","Output":"=== RUN   TestC\n"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    p_test.go:9: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestC","Elapsed":0.5}
{"Action":"output","Package":"p","Output":"FAIL\tp\t3.0s\n"}
{"Action":"fail","Package":"p","Elapsed":3}
{"Action":"output","Package":"q","Output":"PASS\n"}
{"Action":"output","Package":"q","Output":"ok  \tq\t1.0s\n"}
{"Action":"pass","Package":"q","Elapsed":1}
`

const printed = `go: downloading example.com/x v1.0.0
--- SKIP: p TestA/b: p_test.go:7: needs root
    p_test.go:9: wrong
FAIL	p	3.0s
ok  	q	1.0s
the slowest tests:
    2.5 s  p TestA
failed: p TestC (1 of 1)
1 passed, 1 failed, 1 skipped
`

func TestReport(t *testing.T) {
	var b strings.Builder
	r := newReport(&b)
	if err := r.read(strings.NewReader(run)); err != nil {
		t.Fatal(err)
	}
	r.summary(1)
	if b.String() != printed {
		t.Errorf("printed:\n%s", &b)
	}
	if got := r.skippedTests(); got != "^(TestA)$\n" {
		t.Error(got)
	}
}
